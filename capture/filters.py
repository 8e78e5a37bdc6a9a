"""Build capture filters from ports and hosts, and let libpcap compile them before anything starts."""

import ipaddress
from collections.abc import Iterable, Sequence

from .errors import UsageError

_BEFORE_TCP = "icmp or icmp6 or port 53"
"""Why connections cannot be set up: errors that routers report, and name lookups."""


def expression(ports: Sequence[int], hosts: Sequence[str], also: str | None = None) -> str:
    """Build the filter for TCP of any of the ports and any of the hosts, ICMP and DNS, combined with `also` by AND.

    See pcap-filter(7).
    """
    parts = ["tcp"]
    parts += [_join_terms(f"port {port}" for port in dict.fromkeys(ports))] if ports else []
    parts += [_join_terms(f"host {host}" for host in dict.fromkeys(hosts))] if hosts else []
    every = f"({' and '.join(parts)}) or {_BEFORE_TCP}"
    return f"({every}) and ({also})" if also and also.strip() else every


def _join_terms(terms: Iterable[str]) -> str:
    listed = list(terms)
    return listed[0] if len(listed) == 1 else f"({' or '.join(listed)})"


def address(text: str) -> str | None:
    """Parse an IP address and drop its zone; None if the text is not an address."""
    try:
        return str(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return None


def check(text: str) -> bool:
    """Compile a filter; return false if libpcap's binding is not installed, so that only tcpdump can check it.

    Raises UsageError with libpcap's message.
    """
    try:
        import cypcap
    except ImportError:
        return False
    try:
        with cypcap.open_dead(cypcap.DatalinkType.EN10MB, 262_144) as capture:
            capture.compile(text, True, cypcap.NETMASK_UNKNOWN)
    except cypcap.Error as error:
        raise UsageError(f"wrong filter: {text!r}: libpcap says: {error.args[-1]}") from None
    except UnicodeEncodeError:
        raise UsageError(f"wrong filter: {text!r}: it is not text") from None
    return True
