"""`grpcdiag messages`: write one row per gRPC message."""

from .support.tables import row_command

command = row_command("messages", "Write one row per gRPC message.", lacks=("worst",), require_rows=True)
