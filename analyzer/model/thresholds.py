"""Limits that mean the same in several places."""

NOTABLE_SHARE = 0.02
"""Share of RPC time from which a cost matters (heuristic: above the variation between equal runs)."""
CRITICAL_SHARE = 0.20
"""Share of RPC time from which a cost is critical (heuristic: a fifth of it)."""
HIDDEN_SHARE = 0.10
"""Share of RPC time without an explanation, or of RPCs without a known end, that could hide a cause which deserves a
warning (heuristic: a tenth)."""
CRITICAL_CONNECTIONS = 20
"""Connections from which their set-up may be critical (heuristic: fewer cost little in total)."""
UNARY_MESSAGES = 2.1
"""Messages per RPC up to which each request has one response (heuristic: two, and some rounding)."""
PROXY_RPCS = 3
"""RPCs below which a host is not taken for a proxy (heuristic: one or two lie inside another by chance)."""
EQUAL_NUMBERS = 4
"""Packets with equal numbers that prove that two captures have the same connection (heuristic: each has 64 bits)."""
