"""The engine loop, projects and configuration."""
