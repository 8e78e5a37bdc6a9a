"""The figures for a scraper, over HTTP."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Self

from ...capture.errors import UsageError
from ...capture.tcpdump import start_deaf

PATH = "/metrics"
_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_PATIENCE_S = 5.0
"""Longest wait for the next bytes of a request: one scraper is answered at a time."""


class Metrics:
    """Answers scrapers until it is closed; what it answers is the last interval's."""

    def __init__(self, address: tuple[str, int]) -> None:
        """Take the port. Raises UsageError."""
        self.text = b"# EOF\n"
        """What is answered."""
        try:
            self._server = _make_server(address, self)
        except OSError as error:
            where = f"{address[0]}:{address[1]}"
            raise UsageError(
                f"--openmetrics {where}: cannot listen there: {error.strerror}: name another port"
            ) from None

    def __enter__(self) -> Self:
        """Begin to answer."""
        start_deaf(threading.Thread(target=self._server.serve_forever, name="grpcdiag-metrics", daemon=True))
        return self

    def __exit__(self, *_: object) -> None:
        """Give the port back."""
        self._server.shutdown()
        self._server.server_close()

    def show(self, text: str) -> None:
        """Answer with this from now on."""
        self.text = text.encode()


def _make_server(address: tuple[str, int], metrics: Metrics) -> HTTPServer:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != PATH:
                self.send_error(404, f"only {PATH} is here")
                return
            text = metrics.text
            self.send_response(200)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            return  # standard error is the user's

    class Server(HTTPServer):
        address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET

        def server_bind(self) -> None:
            """Bind without asking DNS for the name of the address, as HTTPServer does."""
            self.socket.bind(self.server_address)
            self.server_name, self.server_port = address

        def handle_error(self, *_: object) -> None:
            return  # a scraper has gone away

    return Server(address, Handler)
