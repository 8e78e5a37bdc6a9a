"""`grpcdiag frames`: write one row per HTTP/2 frame."""

from .support.tables import row_command

command = row_command("frames", "Write one row per HTTP/2 frame.", lacks=("worst",), require_rows=True)
