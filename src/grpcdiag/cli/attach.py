"""`grpcdiag attach`: write a bug report for a gRPC project, with its attachments."""

from __future__ import annotations

import dataclasses
import shutil
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..files.atomic_file import replacing, replacing_in
from ..interruption import scratch
from .scrub import list_notes, refuse_differences, write_scrubbed
from .support.common import NO_GRPC, busy, decoding, fail, one_place, say, spooled, temporary_files, writing
from .support.options import Files, Ports, Quiet
from .support.sidecar import find_sidecar

if TYPE_CHECKING:
    from ..analyzer.model.analysis import Analysis
    from ..analyzer.scrub import Report
    from ..analyzer.sidecar.read import Sidecar
    from ..analyzer.tables import Tables
    from ..analyzer.views.excerpt import Excerpt
    from ..analyzer.views.issue_evidence import IssueEvidence
    from ..reports.attachment import Contents, Form, Recorded

ISSUE, HTML, JSON = "issue.md", "report.html", "analysis.json"
"""Names of the files."""
LARGEST = 25_000_000
"""Largest file in bytes that GitHub accepts (docs.github.com, "Attaching files")."""

_REFUSED = "nothing is written: the scrubbed capture"
_WHAT = {
    "capture": "the scrubbed packets: payloads, header values and addresses are replaced, sizes and times are as "
    "recorded; open it with Wireshark",
    "html": "the whole analysis as one page that needs no network",
    "json": "the figures of the analysis",
}


Project = StrEnum("Project", ["grpc-go", "grpc", "grpc-java", "grpc-node", "tonic", "generic"])
"""The project whose issue form is used."""
Part = StrEnum("Part", ["html", "json", "capture", "timeline", "ruled-out", "command"])
"""Parts that can be left out."""
Extra = StrEnum("Extra", ["command"])
"""Parts that are included only on request."""


@dataclasses.dataclass(frozen=True)
class _Wanted:
    """The options of the command."""

    project: Project | None
    hide_methods: bool
    whole_command: bool
    without: frozenset[str]
    ports: list[int] | None
    quiet: bool


def command(
    files: Files,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR|ZIP", help="New folder, or file whose name ends in .zip.")
    ],
    for_: Annotated[
        Project | None,
        typer.Option("--for", help="Project whose issue form to use. Default: that of the implementation seen."),
    ] = None,
    hide_methods: Annotated[bool, typer.Option("--hide-methods", help="Also replace the names of methods.")] = False,
    with_: Annotated[
        list[Extra] | None,
        typer.Option("--with", help="command: show the recorded command line as typed, not masked."),
    ] = None,
    without: Annotated[list[Part] | None, typer.Option("--without", help="Leave this part out; repeatable.")] = None,
    port: Ports = None,
    quiet: Quiet = False,
) -> None:
    """Write a bug report: the issue's text in the project's form, HTML, JSON and a scrubbed capture.

    Everything is made from the scrubbed capture. If its analysis differs from the original's, nothing is written.
    Places that only you can fill in are marked TO FILL.
    """
    _check(output)
    left_out = frozenset(part.value for part in without or [])
    with spooled(files) as paths, temporary_files(), scratch("grpcdiag-attach-") as folder:
        with decoding():
            one_place(paths, {"ports": port or []})
            sidecar, problems = find_sidecar(files)
            for problem in problems:
                say(problem)
            wanted = _Wanted(for_, hide_methods, bool(with_), left_out, port, quiet)
            contents = _make_contents(paths, folder, sidecar, wanted)
        size = _publish(folder, output)
    if not quiet:
        _report(output, size, contents)


def _check(output: Path) -> None:
    if output.is_dir() and (output.suffix.lower() == ".zip" or any(output.iterdir())):
        fail(f"cannot write {output}: a folder of that name exists and is not empty", 2)
    if output.exists() and not output.is_dir() and output.suffix.lower() != ".zip":
        fail(f"cannot write {output}: it is a file; give a new folder, or a name that ends in .zip", 2)


def _make_contents(paths: list[str], folder: Path, sidecar: Sidecar | None, wanted: _Wanted) -> Contents:
    """Write the scrubbed capture and collect the contents; exit if its analysis differs from the original's."""
    from ..analyzer import _core
    from ..reports import attachment, scrub

    written = folder / "capture"
    with written.open("wb") as out:
        report = write_scrubbed(paths, out, wanted.hide_methods, wanted.ports, wanted.quiet)
    target = written.rename(folder / f"capture.{report.format}")
    with busy(wanted.quiet, "comparing the analyses"):
        analysis, evidence, recorded = _compare(paths, target, report, sidecar, wanted)
    present = [("capture", target.name), ("html", HTML), ("json", JSON)]
    contents = attachment.Contents(
        analysis=analysis,
        evidence=evidence,
        form=_find_form(wanted.project, analysis),
        version=_core.__version__,
        files=tuple((name, _WHAT[part]) for part, name in present if part not in wanted.without),
        capture=target.name,
        scrubbed=tuple(scrub.notes(report)),
        recorded=recorded,
        without=wanted.without,
    )
    _write(folder, contents, wanted)
    return contents


def _compare(
    paths: list[str], target: Path, report: Report, sidecar: Sidecar | None, wanted: _Wanted
) -> tuple[Analysis, IssueEvidence, Recorded | None]:
    """Analyze the scrubbed capture and collect its evidence; exit if they differ from the original's."""
    from msgspec.structs import replace

    from ..analyzer.decode.runner import DecodeOptions
    from ..analyzer.scrub import analyses, row_differences
    from ..analyzer.views.excerpt import excerpt
    from ..analyzer.views.issue_evidence import collect_evidence
    from ..reports.scrub import differences

    ports, scrubbed = wanted.ports, [str(target)]
    before, after = analyses(paths, scrubbed, report, ports, sidecar)
    refuse_differences(_REFUSED, [*differences(before, after), *row_differences(paths, scrubbed, ports)], report)
    if isinstance(after, str):
        tls = any(carries == "tls" for _, _, carries in report.connections)
        reason = "TLS stays encrypted in it, with its secrets too" if tls else after
        fail(f"the scrubbed capture has no gRPC traffic: {reason}{list_notes(report)}", NO_GRPC)
    shown = collect_evidence(scrubbed, after, ports=ports or [])
    part, first = shown.example, after.capture.first_time_ns or 0
    begin, end = part.start_ns - first, part.end_ns - first
    how = DecodeOptions(ports=ports or [], as_scrubbed=True)
    original = excerpt(paths, part.connection, stream=part.stream, begin=begin, end=end, **how)
    refuse_differences(_REFUSED, [] if _draw(original, report) == _draw(part) else ["the timeline"], report)
    recorded = _read_sidecar(sidecar, original.tables, wanted) if sidecar and after.recording else None
    return replace(after, files=(target.name,)), shown, recorded


def _draw(part: Excerpt, report: Report | None = None) -> str:
    """Draw the timeline of frames that RFC 9113 defines; with `report`, using the names of the scrubbed capture."""
    from ..analyzer.scrub import defined, renamed
    from ..analyzer.tables.grouping import take_rows
    from ..reports import timeline

    tables, frames = renamed(part.tables, report) if report else part.tables, defined(part.frames)
    if part.stream is not None:
        frames = take_rows(frames, frames.stream == part.stream)
    return timeline.render(dataclasses.replace(part, tables=tables, frames=frames))


def _read_sidecar(sidecar: Sidecar, tables: Tables, wanted: _Wanted) -> Recorded:
    """Read what may be published of the sidecar; `tables` are those of the original capture."""
    from ..analyzer.sidecar import redact as files
    from ..reports.attachment import Recorded
    from ..reports.attachment import command as line

    words, code = files.command(sidecar)
    words = () if "command" in wanted.without else words
    shown = "" if not words else line.whole(words) if wanted.whole_command else line.masked(words)
    return Recorded(
        side=files.side(sidecar, tables),
        kernel=files.kernel(sidecar),
        command=shown,
        masked=line.HIDDEN in shown or "PROGRAM" in shown,
        exit_code=code,
    )


def _find_form(project: Project | None, analysis: Analysis) -> Form:
    """Find the requested form, or that of the implementation with the most RPCs, clients first."""
    from ..reports import attachment

    if project:
        return attachment.named(project.value)
    most = sorted(analysis.connections, key=lambda connection: -connection.rpcs)
    names = [c.client_implementation for c in most] + [c.server_implementation for c in most]
    return attachment.of_implementation(*names)


def _write(folder: Path, contents: Contents, wanted: _Wanted) -> None:
    """Write the files next to the scrubbed capture."""
    from ..reports import analysis_json, attachment

    capture = folder / contents.capture
    (folder / ISSUE).write_text(attachment.render(contents), encoding="utf-8")
    if "json" not in contents.without:
        (folder / JSON).write_text(analysis_json.render(contents.analysis), encoding="utf-8")
    if "html" not in contents.without:
        from ..analyzer.views.page_data import collect_page_data
        from ..reports import html

        drawn = collect_page_data([str(capture)], contents.analysis, ports=wanted.ports or [])
        (folder / HTML).write_text(html.render(contents.analysis, drawn), encoding="utf-8")
    if "capture" in contents.without:
        capture.unlink()


def _publish(folder: Path, output: Path) -> int:
    """Move the files to the output folder or zip, all or none, and return their total size."""
    paths = sorted(folder.iterdir(), key=lambda path: (path.name != ISSUE, path.name))
    packed = output.suffix.lower() == ".zip"
    if packed:
        paths = [_pack(paths, folder / "packed")]
    size = sum(path.stat().st_size for path in paths)
    with writing(output):
        if packed:
            with replacing(output) as out, paths[0].open("rb") as source:
                shutil.copyfileobj(source, out)
            return size
        with replacing_in(output) as make:
            for path in paths:
                with make(path.name) as out, path.open("rb") as source:
                    shutil.copyfileobj(source, out)
    return size


def _pack(paths: list[Path], packed: Path) -> Path:
    """Write a zip of the files, without times and permissions, which would reveal details of this machine."""
    import zipfile

    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in paths:
            entry = zipfile.ZipInfo(path.name)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target)
    return packed


def _report(output: Path, size: int, contents: Contents) -> None:
    """Say what was written, and what to do with it."""
    from ..reports import attachment

    zipped = output.suffix.lower() == ".zip"
    lines = [f"{output}: for {contents.form.name}; {', '.join([ISSUE, *(name for name, _ in contents.files)])}"]
    lines += contents.scrubbed
    lines += attachment.foreign(contents)
    lines.append(
        f"{ISSUE} is the issue's text: fill in its {attachment.blanks(contents)} blanks (marked TO FILL) and read it"
    )
    if contents.files:
        lines.append("then attach the zip" if zipped else "then attach the other files as one .zip")
    if size > LARGEST:
        lines.append(f"{size / 1e6:,.0f} MB{'' if zipped else ' before packing'}: GitHub accepts files up to 25 MB")
    say("\n  ".join(lines))
