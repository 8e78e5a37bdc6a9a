"""`grpcdiag packets`: write one row per TCP packet."""

from .support.tables import row_command

command = row_command("packets", "Write one row per TCP packet.", lacks=("worst", "stream"))
