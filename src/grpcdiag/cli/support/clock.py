"""The option that says how the clocks of two captures are related."""

from enum import StrEnum
from typing import Annotated

import typer

ONE_CLOCK = "--clock is about captures of both ends: these files are one capture, with one clock"
"""Refusal of `--clock` for other captures."""


ClockChoice = StrEnum("ClockChoice", ["symmetric", "synchronised"])
"""How the clocks of two captures are related."""


Clock = Annotated[
    ClockChoice | None,
    typer.Option(
        "--clock",
        help="How the clocks of captures of both ends are related. symmetric, the default: the fastest packets take "
        "equally long both ways. synchronised: the clocks agree. Recordings of one host have one clock.",
    ),
]
