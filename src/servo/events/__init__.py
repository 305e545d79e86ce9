"""Facts: what happened, as frozen values; one module per domain, and the envelope they travel in."""
