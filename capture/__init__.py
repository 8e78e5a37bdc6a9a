"""Record packets with tcpdump while a command runs, with a sidecar; check what a machine lacks for it."""
