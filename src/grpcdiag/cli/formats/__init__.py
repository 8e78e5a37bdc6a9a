"""Report formats of `analyze` that read the capture again."""
