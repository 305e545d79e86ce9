"""What the engine asks of the world: small Protocols whose docstrings are the contracts."""
