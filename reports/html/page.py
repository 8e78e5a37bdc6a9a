"""Build the page from template, style, script, charting library and data, under a content security policy."""

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from msgspec.structs import replace

from ...analyzer import _core
from ...analyzer.model import text as words
from ...analyzer.model.analysis import Analysis
from ...analyzer.model.budget import CAUSES
from ...analyzer.model.tls import KEY_LOGS
from ...analyzer.views.page_data import PageData
from ...analyzer.views.pictures import Picture
from ..shared import client, hops, quality, sentences, tls, two_captures
from ..shared.causes import describe_setup, explain_causes
from . import said
from .columns import deflated, packed

_NAMES = "columns model lanes items bytes chart details latency picture tools main"
SCRIPTS = tuple(f"{name}.js" for name in _NAMES.split())
"""Parts of the page's own script, in the order in which they run."""
PLAIN_SCRIPTS = ("tools.js", "plain.js")
"""Those of a page of text and tables."""
LIBRARY = "echarts.min.js"
"""Apache ECharts as released."""
_RISING = ("start_ns", "time_ns", "packet", "first_packet", "last_packet", "stopped_at_packet", "stream")
_MOST_OPTIONS = 500
"""Most connections in the selection list."""


def prepare() -> None:
    """Do what is the same for all pages: compile the templates and compress the library."""
    for name in ("page", "frame", "sections", "timeline"):
        environment(__package__).get_template(f"{name}.html.j2")
    _deflate_library()


def build_page(analysis: Analysis, page: PageData) -> str:
    """Build the page as text."""
    layout, columns = packed(_list_tables(page), _RISING)
    return _render(
        "page.html.j2",
        asset("style.css"),
        (_read_vendored(LIBRARY), join_scripts(SCRIPTS)),
        analysis=analysis,
        page=page,
        both=two_captures,
        measured=client,
        proxies=hops,
        sentences=sentences,
        encrypted=tls,
        key_logs=KEY_LOGS,
        quality=quality,
        meanings=explain_causes(analysis.ends),
        setup=describe_setup(analysis),
        library=Markup(_deflate_library()),  # like all of `Markup`, made of constants, base64 and JSON that is escaped
        columns=Markup(columns),
        facts=Markup(_encode_json(_collect_facts(analysis, page, layout))),
    )


def render_plain(package: str, template: str, more_style: str = "", **values: Any) -> str:
    """Build a page of text and tables with a template and a style of another package."""
    style = asset("style.css") + files(package).joinpath("style.css").read_text(encoding="utf-8") + more_style
    return _render(template, style, (join_scripts(PLAIN_SCRIPTS),), package, **values)


def _render(template: str, style: str, scripts: Sequence[str], package: str = __package__, **values: Any) -> str:
    """Fill in a template; the page's policy allows the style and the scripts alone, and has the last one."""
    allowed = " ".join(f"'{policy_hash(script)}'" for script in scripts)
    policy = f"default-src 'none'; img-src data:; style-src '{policy_hash(style)}'; script-src {allowed}; "
    text: str = (
        environment(package)
        .get_template(template)
        .render(
            **values,
            said=said,
            policy=Markup(f"{policy}base-uri 'none'; form-action 'none'"),
            style=Markup(style),
            script=Markup(scripts[-1]),
            version=_core.__version__,
        )
    )
    return text


@functools.cache
def asset(name: str) -> str:
    """Read a template, style or script of the page."""
    return files(__package__).joinpath("page", name).read_text(encoding="utf-8")


@functools.cache
def _read_vendored(name: str) -> str:
    return files(__package__).joinpath("vendor", name).read_text(encoding="utf-8")


@functools.cache
def join_scripts(names: tuple[str, ...]) -> str:
    """Join scripts of the page to one that shares no names with others."""
    parts = "\n".join(map(asset, names))
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


@functools.cache
def _deflate_library() -> str:
    """Deflate the library's text. The script adds it to the page, and the policy's hash allows it to run."""
    return deflated(_read_vendored(LIBRARY).encode())


@functools.cache
def policy_hash(text: str) -> str:
    """Hash the text of a style or script as a content security policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@functools.cache
def environment(package: str) -> Environment:
    """Load the templates, and those of another package; all values are cleaned and escaped."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package, ""), PackageLoader(__package__, "page")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {name: getattr(words, name) for name in ("count", "duration", "size")}
    return made


def _clean(value: Any) -> Any:
    """Clean and shorten the text that an expression puts into the page; jinja escapes it afterwards."""
    return said.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _encode_json(value: Any) -> str:
    """Encode JSON that cannot end a script element, whatever it holds."""
    return (
        json.dumps(value, separators=(",", ":")).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    )


def _list_tables(page: PageData) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {}
    for name in ("rpcs", "waits", "frames", "packets", "spans", "steps"):
        table = getattr(page, name)
        fields = [field for field in table.__struct_fields__ if field not in ("shares", "whole", "interval")]
        tables[name] = {field: getattr(table, field) for field in fields}
    shares = page.rpcs.shares
    tables["rpcs"] |= {f"share{place}": shares[:, place] for place in range(shares.shape[1]) if shares[:, place].any()}
    return tables


def _collect_facts(analysis: Analysis, page: PageData, layout: Any) -> Mapping[str, Any]:
    """Collect what the script needs besides the columns; all text is clean."""
    zero = analysis.capture.first_time_ns or 0
    known = {connection.connection: connection for connection in analysis.connections}
    return {
        "layout": layout,
        "duration": page.duration_ns,
        "causes": list(CAUSES),
        "frames": [*_core.FRAME_TYPES, "UNKNOWN"],
        "statuses": list(_core.STATUSES),
        "notes": list(_core.PACKET_NOTES),
        "parts": list(_core.PATH_PARTS),
        "threads": {thread: said.name(name) for thread, name in page.threads.items()},
        "whole": page.spans.whole,
        "named": _MOST_OPTIONS,
        "connections": [
            [
                c.connection,
                c.start_ns,
                c.end_ns,
                f"{said.name(of.client)} → {said.name(of.server)}",
                of.rpcs,
                of.vantage,
            ]
            for c in page.connections
            if (of := known.get(c.connection))
        ],
        "methods": [said.method_name(m.name, m.label) for m in page.methods],
        "bins": _core.CLASSES_PER_DECADE,
        "pictures": [_encode_picture(picture) for picture in said.pictures(analysis, page)],
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


def _encode_picture(picture: Picture | None) -> Any:
    """Encode a picture; its text is cleaned, and its methods are named as in the list of methods."""
    if picture is None:
        return None
    names = tuple(said.name(method) for method in picture.methods)
    return msgspec.to_builtins(replace(picture, title=said.clean(picture.title), methods=names))
