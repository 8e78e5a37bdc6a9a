"""Writing files: whole or not at all, never through links of others. Every layer that writes uses this package."""
