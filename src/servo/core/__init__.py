"""Pure values and decisions: no I/O, no clock, no hidden randomness (held by tests/house)."""
