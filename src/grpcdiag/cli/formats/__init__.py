"""Reports of `analyze` that read the capture again."""
