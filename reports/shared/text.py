"""What a terminal and Wireshark can show of a text."""

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
    """The text of a report in ASCII, in as many columns: frames and bars by their likes, foreign letters as `?`."""
    text = text.translate(_ASCII)
    if text.isascii():
        return text
    from rich.cells import (
        cell_len,  # only here: rich is not needed for anything else here: most commands start without it
    )

    return "".join(c if c.isascii() else "?" * cell_len(c) for c in text)


def packet_filter(packets: Iterable[int]) -> str:
    """The Wireshark display filter that shows some packets: `frame.number in {45, 54..56}`."""
    runs: list[list[int]] = []
    for packet in sorted(set(packets)):
        if runs and packet == runs[-1][-1] + 1:
            runs[-1].append(packet)
        else:
            runs.append([packet])
    said = [f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    if said == [str(runs[0][0])]:
        return f"frame.number == {said[0]}"
    return f"frame.number in {{{', '.join(said)}}}"
