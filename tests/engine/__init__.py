"""Engines, sessions and executors at work, in virtual time where threads are not the point."""
