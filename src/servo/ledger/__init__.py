"""The storage engine: the log, manifests, publishing, merging and readers."""
