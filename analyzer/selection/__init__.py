"""The analysis of some of the RPCs of a capture."""
