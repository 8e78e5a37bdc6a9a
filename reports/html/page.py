"""The page put together: template, style, script, charting library and data, bound by a content security policy."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import BaseLoader, ChoiceLoader, Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ...analyzer import _core
from ...analyzer.model import text as words
from ...analyzer.model.analysis import Analysis, ConnectionFacts
from ...analyzer.model.budget import CAUSES
from ...analyzer.views.page_data import BINS_PER_DECADE, PageData
from ..shared import two_captures
from . import said
from .columns import deflated, packed

SCRIPTS = (
    "columns.js",
    "model.js",
    "lanes.js",
    "items.js",
    "bytes.js",
    "chart.js",
    "details.js",
    "latency.js",
    "main.js",
)
"""Parts of the page's own script, in their order."""
LIBRARY = "echarts.min.js"
"""Apache ECharts as released."""
_RISING = ("start_ns", "time_ns", "packet", "first_packet", "last_packet", "stopped_at_packet", "stream")
_MOST_OPTIONS = 500
"""Connections that can be chosen by name."""


def assembled(analysis: Analysis, page: PageData) -> str:
    """The page as text."""
    layout, columns = packed(_tables(page), _RISING)
    style, library, script = asset("style.css"), _vendored(LIBRARY), _script()
    policy = (
        f"default-src 'none'; img-src data:; style-src '{policy_hash(style)}'; script-src '{policy_hash(library)}' "
    )
    policy += f"'{policy_hash(script)}'; base-uri 'none'; form-action 'none'"
    text: str = (
        environment()
        .get_template("page.html.j2")
        .render(
            analysis=analysis,
            page=page,
            said=said,
            both=two_captures,
            policy=Markup(policy),  # made of constants and base64 alone
            style=Markup(style),
            script=Markup(script),
            library=Markup(_library()),
            columns=Markup(columns),
            facts=Markup(_json(_facts(analysis, page, layout))),
            version=_core.__version__,
        )
    )
    return text


@functools.cache
def asset(name: str) -> str:
    """A part of the page."""
    return files(__package__).joinpath("page", name).read_text(encoding="utf-8")


@functools.cache
def _vendored(name: str) -> str:
    return files(__package__).joinpath("vendor", name).read_text(encoding="utf-8")


@functools.cache
def _script() -> str:
    parts = "\n".join(asset(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


@functools.cache
def _library() -> str:
    """The library's text, deflated; the script puts it into the page, where its hash lets it run."""
    return deflated(_vendored(LIBRARY).encode())


@functools.cache
def policy_hash(text: str) -> str:
    """How a content security policy names the text of a style or script that may act."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@functools.cache
def environment(*more: BaseLoader) -> Environment:
    """The templates, and those of `more` loaders; whatever goes into a page is made harmless and escaped."""
    made = Environment(
        loader=ChoiceLoader([*more, FunctionLoader(asset)]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {name: getattr(words, name) for name in ("count", "duration", "size")}
    return made


def _shown(value: Any) -> Any:
    """What goes into the page out of an expression: text without characters that act, and cut; escaped afterwards."""
    return said.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _json(value: Any) -> str:
    """JSON that ends no script element, whatever it holds."""
    return (
        json.dumps(value, separators=(",", ":")).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    )


def _tables(page: PageData) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {}
    for name in ("rpcs", "waits", "frames", "packets", "spans"):
        table = getattr(page, name)
        columns = {
            field: getattr(table, field) for field in table.__struct_fields__ if field not in ("shares", "whole")
        }
        tables[name] = columns
    shares = page.rpcs.shares
    tables["rpcs"] |= {f"share{place}": shares[:, place] for place in range(shares.shape[1]) if shares[:, place].any()}
    return tables


def _facts(analysis: Analysis, page: PageData, layout: Any) -> Mapping[str, Any]:
    """What the script knows besides the columns; all text is clean."""
    zero = analysis.capture.first_time_ns or 0
    known = {connection.connection: connection for connection in analysis.connections}
    return {
        "layout": layout,
        "duration": page.duration_ns,
        "causes": list(CAUSES),
        "frames": [*_core.FRAME_TYPES, "UNKNOWN"],
        "statuses": list(_core.STATUSES),
        "notes": list(_core.PACKET_NOTES),
        "whole": page.spans.whole,
        "named": _MOST_OPTIONS,
        "connections": [
            [c.connection, c.start_ns, c.end_ns, *_connection(known[c.connection])]
            for c in page.connections
            if c.connection in known
        ],
        "methods": [said.method_name(m.name, m.label) for m in page.methods],
        "bins": BINS_PER_DECADE,
        "latencies": said.distributions(analysis, page),
        "findings": [
            {
                "id": finding.id,
                "connections": finding.scope.connections[:8],
                "evidence": [[e.packet, e.time_ns - zero] for e in finding.evidence[: said.MOST_EVIDENCE]],
            }
            for finding in said.ranked(analysis)
        ],
    }


def _connection(c: ConnectionFacts) -> tuple[str, int, str]:
    """Both ends, RPCs, and where it was recorded."""
    return f"{said.name(c.client)} → {said.name(c.server)}", c.rpcs, c.vantage
