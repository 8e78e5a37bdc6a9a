"""What was observed in a capture, measured once for the detectors that need it."""
