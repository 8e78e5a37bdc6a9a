"""What docs/generate.py writes: one file per kind of page."""
