"""From tables to the figures of a report, and from findings to a verdict."""
