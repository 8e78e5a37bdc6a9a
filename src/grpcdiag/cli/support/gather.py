"""Options in structs: a command takes one struct where typer wants a parameter for each option."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container
from functools import wraps
from typing import Any

from msgspec import StructMeta


def gather_options(command: Callable[..., None], lacks: Container[str] = ()) -> Callable[..., None]:
    """Show typer the fields of a command's structs as parameters, except `lacks`, and call it with the structs."""
    structs: dict[str, tuple[StructMeta, list[str]]] = {}
    shown: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if isinstance(parameter.annotation, StructMeta):
            fields = inspect.signature(parameter.annotation).parameters.values()
            offered = [field for field in fields if field.name not in lacks]
            structs[parameter.name] = parameter.annotation, [field.name for field in offered]
            shown += offered
        elif parameter.name not in lacks:
            shown.append(parameter)

    @wraps(command)
    def run(**given: Any) -> None:
        gathered = {
            name: struct(**{field: given.pop(field) for field in own}) for name, (struct, own) in structs.items()
        }
        command(**given, **gathered)

    # by keyword alone, a parameter without a default may follow one that has it
    vars(run)["__signature__"] = inspect.Signature([one.replace(kind=one.KEYWORD_ONLY) for one in shown])
    return run
