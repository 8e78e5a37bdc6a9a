"""What a terminal and Wireshark can show of a text."""

from __future__ import annotations

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
