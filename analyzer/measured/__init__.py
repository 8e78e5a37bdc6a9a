"""Read records of calls that a client measured, and join them with the RPCs of a capture."""
