"""From bytes to findings."""
