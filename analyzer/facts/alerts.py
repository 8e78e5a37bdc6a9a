"""What a TLS alert says, by who sent it and when (RFC 8446 section 6)."""

from msgspec import Struct

from .. import _core
from ..tables import Tables

_PREFACE = _core.BEGINNINGS.index("preface")
"""Value of `Setups.client_begins`."""

SERVER_CERTIFICATE, CLIENT_CERTIFICATE = "server's certificate", "client's certificate"


class _Alert(Struct, frozen=True):
    """An alert, and what to do about it."""

    name: str
    says: str
    """What its sender did with the peer; `{whose}` is the peer's certificate."""
    advice: str
    """What to do first; `{whose}` and `{sender}` as above."""


_CHECK = "check the {whose}: its names, its purpose and its chain"
_ALPN = "enable h2 in the ALPN of what ends TLS there"
_SUITES = "compare the TLS versions and cipher suites that both ends allow"
_SEE = "check certificates, TLS versions and ALPN of both ends"

_ALERTS = {
    10: _Alert("unexpected_message", "", _SEE),
    20: _Alert("bad_record_mac", "", _SEE),
    22: _Alert("record_overflow", "", _SEE),
    40: _Alert("handshake_failure", "", _SUITES),
    42: _Alert("bad_certificate", "refused the {whose}", _CHECK),
    43: _Alert("unsupported_certificate", "refused the type of the {whose}", _CHECK),
    44: _Alert("certificate_revoked", "refused the {whose} as revoked", "replace the {whose}"),
    45: _Alert(
        "certificate_expired", "refused the {whose} as expired", "renew the {whose}, or set the {sender}'s clock"
    ),
    46: _Alert("certificate_unknown", "refused the {whose}", _CHECK),
    47: _Alert("illegal_parameter", "", _SEE),
    48: _Alert(
        "unknown_ca",
        "does not trust who signed the {whose}",
        "give the {sender} the root certificate of who signed the {whose}",
    ),
    49: _Alert("access_denied", "accepted the {whose} and denied access", "check what the {sender} allows"),
    50: _Alert("decode_error", "", _SEE),
    51: _Alert("decrypt_error", "could not verify a signature", "check that the {whose} and its key belong together"),
    70: _Alert("protocol_version", "allows no TLS version that the peer has", _SUITES),
    71: _Alert("insufficient_security", "allows no cipher suite that the peer has", _SUITES),
    80: _Alert("internal_error", "had an error of its own", "the {sender}'s log says which"),
    86: _Alert("inappropriate_fallback", "", _SEE),
    90: _Alert("user_canceled", "", _SEE),
    109: _Alert("missing_extension", "", _SEE),
    110: _Alert("unsupported_extension", "", _SEE),
    112: _Alert(
        "unrecognized_name", "knows no host of the name asked for (SNI)", "check the name that the client asks for"
    ),
    113: _Alert("bad_certificate_status_response", "", _SEE),
    115: _Alert("unknown_psk_identity", "", _SEE),
    116: _Alert(
        "certificate_required",
        "refused the client for lack of a certificate",
        "give the client the certificate and key that the server asks for (mTLS)",
    ),
    120: _Alert("no_application_protocol", "selects none of the ALPN protocols that the client offers", _ALPN),
}
"""The alerts by number (RFC 8446 section 6; 22 and 120 as in RFC 7301 and the IANA registry)."""


def _find(tables: Tables, connection: int) -> tuple[int, bool, _Alert]:
    """Return an alert's number, whether the server sent it, and what it says."""
    number, by = int(tables.setups.alert[connection]), int(tables.setups.alert_by[connection])
    return number, by == 1, _ALERTS.get(number, _Alert("not in RFC 8446", "", _SEE))


def _fill(text: str, by_server: bool) -> str:
    whose, sender = (CLIENT_CERTIFICATE, "server") if by_server else (SERVER_CERTIFICATE, "client")
    return text.format(whose=whose, sender=sender)


def _is_for_cleartext(tables: Tables, connection: int) -> bool:
    """Check whether the client sent no TLS: the alert is for the preface of HTTP/2."""
    return bool(tables.setups.client_begins[connection] == _PREFACE)


def describe(tables: Tables, connection: int, hello: str) -> str:
    """Say of a server what alert it sent or received: `refused the client's certificate (TLS alert ...)`."""
    number, by_server, alert = _find(tables, connection)
    says, named = _fill(alert.says, by_server), f"TLS alert {number} ({alert.name})"
    if by_server and (_is_for_cleartext(tables, connection) or not says):
        began = tables.connections.tls_server_hello_ns[connection] >= 0
        return f"ended the TLS handshake with {named}" if began else f"answered {hello} with {named}"
    if by_server:
        return f"{says} ({named[:-1].replace(' (', ', ')})"
    return f"received {named} from the client" + (f", which {says}" if says else "")


def advise(tables: Tables, connection: int) -> str:
    """Say what to do first about an alert."""
    _, by_server, alert = _find(tables, connection)
    if _is_for_cleartext(tables, connection):
        return "use TLS there, or the port that has none"
    return _fill(alert.advice, by_server)
