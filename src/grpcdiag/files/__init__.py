"""Writing files: whole or not at all, never through somebody else's links. Every layer that writes uses it."""
