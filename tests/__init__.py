"""Tests by kind: `house` holds the repository together; the others are named after what they prove."""
