"""Texts for terminals without Unicode, and Wireshark display filters."""

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
