"""One suite per port, run over all its adapters."""
