"""The columns of each table that people see, and the names by which they may ask for any column."""

from typing import NamedTuple


class View(NamedTuple):
    """The columns that people see."""

    columns: dict[str, str]
    """Names of the table's columns by heading."""
    flexible: tuple[str, ...] = ()
    """Headings of texts that are shortened in the middle."""
    least: int = 12
    """Width down to which they are shortened first."""
    dispensable: tuple[str, ...] = ()
    """Headings left out, in this order, where that does not suffice; then texts are shortened further."""


def _parse(text: str) -> dict[str, str]:
    pairs = (one.partition("=") for one in text.split())
    return {heading: name or heading for heading, _, name in pairs}


VIEWS = {
    "connections": View(
        _parse(
            "conn=connection client server opened=opened_time_ns min_rtt=min_rtt_ns rpcs "
            "bytes_up=bytes_client bytes_down=bytes_server"
        ),
        ("client", "server"),
        len("255.255.255.255:65535"),
        ("opened", "min_rtt"),
    ),
    "rpcs": View(
        _parse(
            "time=start_time_ns conn=connection stream method duration=duration_ns status packet=first_packet "
            "causes=budget"
        ),
        ("method",),
        dispensable=("packet", "conn"),
    ),
    "messages": View(
        _parse("time=first_time_ns conn=connection stream direction index length compressed packet=first_packet"),
        dispensable=("compressed", "index"),
    ),
    "frames": View(
        _parse("time=first_time_ns conn=connection stream direction type flags length packet=first_packet"),
        dispensable=("flags", "conn"),
    ),
    "packets": View(
        _parse("packet time=time_ns conn=connection direction flags seq payload=payload_bytes note"),
        ("flags", "note"),
        dispensable=("seq", "conn"),
    ),
    "waits": View(
        _parse(
            "time=start_time_ns duration=duration_ns conn=connection stream direction cause owed=owed_bytes "
            "packet=stopped_at_packet"
        ),
        dispensable=("conn", "owed"),
    ),
}
"""What is shown of each table: six columns at least, which fit 80."""

TIMES = {table: view.columns.get("time", view.columns.get("opened", "")) for table, view in VIEWS.items()}
"""The time of a row: when it begins."""
