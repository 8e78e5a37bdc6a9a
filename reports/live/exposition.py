"""Serve the figures of the last 60 seconds to Prometheus."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LOOPBACK = "127.0.0.1"


class Exposition:
    """Answers `GET /metrics` with the text that was set last."""

    def __init__(self, host: str, port: int) -> None:
        """Listen. Raises OSError."""
        self.text = "# EOF\n"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            """Knows one page."""

            timeout = 10

            def do_GET(self) -> None:
                """Answer with the text, or 404."""
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404, "only /metrics is here")
                    return
                body = outer.text.encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Write nothing: the terminal belongs to the view."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="grpcdiag-metrics", daemon=True)

    def __enter__(self) -> Self:
        """Begin to answer."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
