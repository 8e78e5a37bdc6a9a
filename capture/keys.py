"""Let the recorded command write its TLS secrets to a private file, and embed them in the capture."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..analyzer.sidecar.names import KEYS_SUFFIX
from .errors import RecordingError, UsageError

if TYPE_CHECKING:
    from .output import Output

MOST_EMBEDDED = 16 << 20
"""Most bytes of secrets that grpcdiag reads from a capture (docs/limits.md)."""
NONE_WRITTEN = (
    "COMMAND wrote no TLS secrets: it used no TLS, or its TLS library ignores SSLKEYLOGFILE; docs/recording-well.md "
    "says what each gRPC implementation needs"
)
_LINE = re.compile(rb"^[A-Z0-9_]+ ([0-9a-fA-F]{64}) [0-9a-fA-F]+\r?$", re.MULTILINE)
"""A line of a key log: label, client random, secret."""
_SECRETS_BLOCK, _KEY_LOG = 0x0000000A, 0x544C534B
"""pcapng: type of a Decryption Secrets Block, and of secrets in the format of SSLKEYLOGFILE."""


class KeyLog:
    """The file to which the command's TLS library writes its secrets."""

    def __init__(self, output: Output, *, embedded: bool) -> None:
        """Make it. `embedded`: the secrets go into the capture at the end. Raises RecordingError."""
        if output.device:
            raise UsageError("--keys needs a file as -o, not a pipe or a device")
        try:
            self._descriptor, path = output.make_keys()
        except OSError as error:
            raise RecordingError(f"COMMAND cannot write TLS secrets next to {output.path}: {error.strerror}") from None
        self.variables = name_variables(path)
        """The command's environment has these."""
        self._output = output
        self._embedded = embedded

    def settle(self) -> str:
        """Leave the secrets next to the capture, or embed them; say where they are. Raises RecordingError, OSError."""
        output, capture = self._output, self._output.descriptor()
        secrets = os.pread(self._descriptor, MOST_EMBEDDED + 1, 0)
        connections = len(set(_LINE.findall(secrets)))
        where = output.shown(output.name + KEYS_SUFFIX)
        if not connections and secrets:
            return f"{where}: COMMAND wrote it, but not in the format of SSLKEYLOGFILE, so it decrypts nothing here"
        if not connections:
            output.drop(KEYS_SUFFIX)
            return NONE_WRITTEN
        if self._embedded and capture is not None:
            _embed(output, capture, secrets, where)
            where = str(output.path)
        return f"{where} has the TLS secrets of {connections:,} connection{'s' if connections > 1 else ''}"


def name_variables(path: str) -> dict[str, str]:
    """Name the environment variables that let TLS libraries write their secrets to a file."""
    quoted = path.replace("\\", "\\\\").replace('"', '\\"')
    node = f'{os.environ.get("NODE_OPTIONS", "")} "--tls-keylog={quoted}"'.strip()
    return {"SSLKEYLOGFILE": path, "NODE_OPTIONS": node}


def _embed(output: Output, capture: int, secrets: bytes, where: str) -> None:
    """Put the secrets into the capture. Raises RecordingError, and then they are in the file `where`."""
    from ..analyzer import _core

    if len(secrets) > MOST_EMBEDDED:
        raise RecordingError(f"{where} has more than {MOST_EMBEDDED >> 20} MiB")
    try:
        output.replace(list_pieces(capture, secrets))
    except (OSError, _core.CaptureError) as error:
        raise RecordingError(f"they are in {where}: {getattr(error, 'strerror', None) or error}") from None
    output.drop(KEYS_SUFFIX)


def list_pieces(capture: int, secrets: bytes) -> Iterator[bytes]:
    """Give an open pcap file as pcapng with secrets in front of the packets. Raises CaptureError."""
    from ..analyzer.decode.annotate import Annotating  # imported only here: most recordings do not need it

    pieces = Annotating([f"/proc/self/fd/{capture}"], ()).pieces()  # another program may change the path
    first = next(pieces)
    header = int.from_bytes(first[4:8], "little")
    yield first[:header] + _encode_block(secrets) + first[header:]
    yield from pieces


def _encode_block(secrets: bytes) -> bytes:
    content = b"".join(number.to_bytes(4, "little") for number in (_KEY_LOG, len(secrets)))
    content += secrets + bytes(-len(secrets) % 4)
    length = (len(content) + 12).to_bytes(4, "little")
    return _SECRETS_BLOCK.to_bytes(4, "little") + length + content + length
