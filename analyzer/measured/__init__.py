"""What a client measured: records of its calls, and which RPCs of a capture they are."""
