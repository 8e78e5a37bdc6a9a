"""Settings for HTTP/2 flow-control windows, by implementation and end."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.finding import Remedy

_GO = "64 KiB or more switches the BDP estimator off; when unset, windows grow to 16 MiB automatically"
_JAVA = "flowControlWindow(n) fixes the window at n (1 MiB by default); initialFlowControlWindow(n) lets it grow"
_CORE = "the BDP estimator (on by default) enlarges windows; keep it on"
_TONIC = "1 MiB on servers, 2 MiB (5 MiB per connection) on clients by default; http2_adaptive_window enlarges them"
_MEMORY = "each open stream or connection may hold that much memory"

_SETTINGS: Mapping[str, tuple[tuple[str, str], tuple[str, str], str]] = {
    "grpc-go": (
        ("grpc.WithInitialWindowSize(n)", "grpc.WithInitialConnWindowSize(n)"),
        ("grpc.InitialWindowSize(n)", "grpc.InitialConnWindowSize(n)"),
        _GO,
    ),
    "grpc-java": (
        ("NettyChannelBuilder.initialFlowControlWindow(n)",) * 2,
        ("NettyServerBuilder.initialFlowControlWindow(n)",) * 2,
        _JAVA,
    ),
    "C-core (C++, Python, Ruby, PHP)": (("grpc.http2.bdp_probe=1",) * 2, ("grpc.http2.bdp_probe=1",) * 2, _CORE),
    "grpc-node": (("grpc-node.flow_control_window=n",) * 2, ("", ""), "65,535 bytes by default"),
    "tonic": (
        ("Endpoint::initial_stream_window_size(n)", "Endpoint::initial_connection_window_size(n)"),
        ("Server::initial_stream_window_size(n)", "Server::initial_connection_window_size(n)"),
        _TONIC,
    ),
    "grpc-dotnet": (
        ("SocketsHttpHandler.InitialHttp2StreamWindowSize = n", ""),
        ("Kestrel Limits.Http2.InitialStreamWindowSize = n", "Kestrel Limits.Http2.InitialConnectionWindowSize = n"),
        _MEMORY,
    ),
    "envoy": (
        ("http2_protocol_options.initial_stream_window_size", "http2_protocol_options.initial_connection_window_size"),
        ("http2_protocol_options.initial_stream_window_size", "http2_protocol_options.initial_connection_window_size"),
        "a proxy has separate windows for each side",
    ),
}
"""Setting for (stream, connection) at a client, at a server, and a note about it."""

_C_CORE = ("grpc-c++", "grpc-python", "grpc-ruby", "grpc-php", "grpc-csharp", "grpc-objc", "grpc-c")


def find_family(implementation: str | None) -> str | None:
    """Find the implementation in `_SETTINGS` that a user-agent or a hint names; None when it is not known."""
    name = (implementation or "").split("/")[0].split(" ")[0]
    if name in _C_CORE or name == "grpc-c-core":
        return "C-core (C++, Python, Ruby, PHP)"
    return next((known for known in _SETTINGS if name and name.startswith(known)), None)


def list_settings(implementation: str | None, direction: int, connection_window: bool) -> tuple[Remedy, ...]:
    """List the settings of the implementation seen at the end that sends in `direction`; of all when none was seen."""
    seen = find_family(implementation)
    names = [name for name in _SETTINGS if seen in (None, name) or name == "envoy"]
    found = [(name, _SETTINGS[name][direction][connection_window], _SETTINGS[name][2]) for name in names]
    end = ("client", "server")[direction]
    return tuple(Remedy(name, knob, f"on the {end}: {note}") for name, knob, note in found if knob)
