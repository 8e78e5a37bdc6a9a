"""Reports on a dataset as text, JSON and HTML."""
