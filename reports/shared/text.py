"""Texts for terminals without Unicode, and Wireshark display filters."""

from __future__ import annotations

from collections.abc import Iterable

_ASCII = str.maketrans(
    dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼╞╡╪┏┓┗┛┡┩╇", "+")
    | dict.fromkeys("─━═╌┄", "-")
    | dict.fromkeys("│┃║", "|")
    | dict(zip("▁▂▃▄▅▆▇█", "._-=+*%#", strict=True))
    | {"▏": ".", "µ": "u", "…": "~", "→": ">", "←": "<", "≤": "<", "≥": ">", "·": ".", "\xa0": " "}
)


def ascii_only(text: str) -> str:
    """Write a report in ASCII of the same width: frames and bars by similar characters, other letters as `?`."""
    text = text.translate(_ASCII)
    if text.isascii():
        return text
    from rich.cells import (
        cell_len,  # imported only here, so that commands without this text start without rich
    )

    return "".join(c if c.isascii() else "?" * cell_len(c) for c in text)


def packet_filter(packets: Iterable[int]) -> str:
    """Build the Wireshark display filter for some packets: `frame.number in {45, 54..56}`."""
    runs: list[list[int]] = []
    for packet in sorted(set(packets)):
        if runs and packet == runs[-1][-1] + 1:
            runs[-1].append(packet)
        else:
            runs.append([packet])
    ranges = [f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    if ranges == [str(runs[0][0])]:
        return f"frame.number == {ranges[0]}"
    return f"frame.number in {{{', '.join(ranges)}}}"
