"""`grpcdiag waits`: write one row per blocked interval."""

from .support.tables import row_command

command = row_command("waits", "Write one row per blocked interval: a side had bytes left to send and sent none.")
