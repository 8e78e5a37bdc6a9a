"""Recording: tcpdump around a command, what packets do not show beside it, and what a machine lacks for it."""
