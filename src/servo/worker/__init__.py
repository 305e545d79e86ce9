"""What runs user code and reports how it went."""
