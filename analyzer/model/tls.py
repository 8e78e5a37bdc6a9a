"""What an analysis says of TLS connections whose secrets it does not have."""

from collections.abc import Mapping

from msgspec import Struct

LARGEST_ALERT = 26
"""Octets of an encrypted alert, at most: of TLS 1.2 with AES-GCM (RFC 5288); a preface of HTTP/2 has 40 or more."""


class KeyLog(Struct, frozen=True):
    """How an implementation gives its TLS secrets."""

    implementation: str
    how: str


KEY_LOGS: tuple[KeyLog, ...] = tuple(
    KeyLog(implementation, how)
    for implementation, how in (
        ("grpc-go", "tls.Config{KeyLogWriter: file} in credentials.NewTLS"),
        (
            "C++",
            "TlsCredentialsOptions::set_tls_session_key_log_file_path(FILE), with grpc::experimental::TlsCredentials",
        ),
        ("Python, Ruby, PHP", "no option for it: log the secrets at the other end"),
        (
            "grpc-java",
            "an agent such as jSSLKeyLog, with the JDK's TLS (grpc-okhttp, grpc-netty without tcnative); "
            "grpc-netty-shaded has a TLS of its own, which agents do not see",
        ),
        ("grpc-js", "node --tls-keylog=FILE, or NODE_OPTIONS=--tls-keylog=FILE"),
        ("tonic", "ClientTlsConfig::use_key_log() or ServerTlsConfig::use_key_log(), and SSLKEYLOGFILE=FILE"),
        (
            "grpc-dotnet",
            "from .NET 9 on, on Linux: SSLKEYLOGFILE=FILE, and AppContext switch System.Net.EnableSslKeyLogging=true",
        ),
    )
)
"""One line for each implementation."""


class Silences(Struct, frozen=True):
    """Intervals without a record, each ended by a record of the side they are told of."""

    count: int
    total_ns: int
    longest_ns: int
    longest_time_ns: int
    """When the longest began, nanoseconds since the epoch."""
    from_packet: int
    """The packet that the longest began with."""
    to_packet: int
    """The packet that ended it."""


class RecordFacts(Struct, frozen=True):
    """The records that one side sent after the handshake."""

    records: int
    bytes: int
    """Bytes of the records, without their headers."""
    longest_bytes: int
    answers: Silences | None
    """From the other side's last byte to this side's next record; None when there is no such record."""
    pauses: Silences | None
    """Silences of 1 ms or longer between two records of this side; None when there is none."""


class Blocked(Struct, frozen=True):
    """How often and how long a sender was blocked inside a record."""

    waits: int
    total_ns: int


class TlsFacts(Struct, frozen=True):
    """A TLS connection of which nothing was decrypted."""

    connection: int
    """Row of the connections table."""
    version: str | None
    """`TLS 1.3`; None when no ServerHello is in the capture."""
    cipher_suite: str | None
    """Its number in IANA's registry, `0x1301`."""
    offers_h2: bool | None
    """Whether the client offers HTTP/2 by ALPN; None when it offers nothing."""
    h2: bool | None
    """Whether the server chose HTTP/2; None when that is encrypted, as in TLS 1.3."""
    resumed: bool | None
    """Whether an earlier session is resumed."""
    retried: bool
    """The server asked for a second ClientHello, which costs a round trip."""
    handshake_ns: int | None
    """From the ClientHello to the client's Finished, or the first encrypted record of the client, which has it."""
    server_hello_ns: int | None
    """From the ClientHello to the end of the ServerHello, nanoseconds."""
    hello_packet: int | None
    finished_packet: int | None
    client: RecordFacts
    server: RecordFacts
    blocked: Mapping[str, Blocked]
    """By cause: a side had begun a record and sent no more of it for a while."""

    @property
    def is_wordless(self) -> bool:
        """Say whether the client sent no more than an alert after its part of the handshake: no RPC is in there."""
        begun = self.hello_packet is not None
        return begun and self.client.records <= 1 and self.client.bytes <= LARGEST_ALERT

    @property
    def may_be_grpc(self) -> bool:
        """gRPC needs HTTP/2: not when its client offers other protocols only, or its server chose another."""
        return self.offers_h2 is not False and self.h2 is not False


class TlsReport(Struct, frozen=True):
    """TLS connections that were not decrypted, and how to decrypt them next time."""

    connections: tuple[TlsFacts, ...]
    key_logs: tuple[KeyLog, ...]
    """How each implementation gives its secrets."""
