"""`grpcdiag attach`: what goes with a bug report upstream."""

from __future__ import annotations

import dataclasses
import shutil
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..files.atomic_file import replacing, replacing_in
from ..interruption import scratch
from .scrub import DIFFERS, SHOWN, write_scrubbed
from .support.common import NO_GRPC, Files, Ports, Quiet, busy, decoding, fail, one_place, say, spooled, temporary_files
from .support.sidecar import find_sidecar

if TYPE_CHECKING:
    from ..analyzer.model.analysis import Analysis
    from ..analyzer.scrub import Report
    from ..analyzer.sidecar.read import Sidecar
    from ..analyzer.tables import Tables
    from ..analyzer.views.excerpt import Excerpt
    from ..analyzer.views.issue_evidence import IssueEvidence
    from ..reports.attachment import Contents, Form, Recorded

NAME = "attach"

ISSUE, HTML, JSON = "issue.md", "report.html", "analysis.json"
"""Names of the files."""
LARGEST = 25_000_000
"""Bytes that GitHub takes as one file (docs.github.com, "Attaching files")."""

_WHAT = {
    "capture": "the scrubbed packets: payloads and header values are replaced, addresses are stand-ins, sizes and "
    "times are as recorded; Wireshark opens it",
    "html": "the whole reading to look at, in one file that needs no network",
    "json": "its figures",
}


class Project(StrEnum):
    """Whose issue form is followed."""

    grpc_go = "grpc-go"
    grpc = "grpc"
    grpc_java = "grpc-java"
    grpc_node = "grpc-node"
    tonic = "tonic"
    generic = "generic"


class Part(StrEnum):
    """What may be left out, or is there only when asked for."""

    html = "html"
    json = "json"
    capture = "capture"
    timeline = "timeline"
    ruled_out = "ruled-out"
    command = "command"


class Extra(StrEnum):
    """What is there only when asked for."""

    command = "command"


@dataclasses.dataclass(frozen=True)
class _Wanted:
    """The options."""

    project: Project | None
    hide_methods: bool
    whole_command: bool
    without: frozenset[str]
    ports: list[int] | None
    quiet: bool


def command(
    files: Files,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR|ZIP", help="A new folder, or a file whose name ends in .zip.")
    ],
    for_: Annotated[
        Project | None,
        typer.Option("--for", help="Whose issue form to follow; by default that of the implementation seen."),
    ] = None,
    hide_methods: Annotated[bool, typer.Option("--hide-methods", help="Replace the names of methods too.")] = False,
    with_: Annotated[
        list[Extra] | None,
        typer.Option("--with", help="command: show the recorded command line as it was typed, not masked."),
    ] = None,
    without: Annotated[
        list[Part] | None, typer.Option("--without", help="Leave this part out; may be repeated.")
    ] = None,
    port: Ports = None,
    quiet: Quiet = False,
) -> None:
    """Write what goes with a bug report: the issue's text after the project's form, HTML, JSON, a scrubbed capture.

    Everything is made from the scrubbed capture. Nothing is written when that would tell anything else than the
    original. What only you know is marked TO FILL.
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
            contents = _contents(paths, folder, sidecar, wanted)
        size = _publish(folder, output)
    if not quiet:
        _tell(output, size, contents)


def _check(output: Path) -> None:
    if output.is_dir() and (output.suffix.lower() == ".zip" or any(output.iterdir())):
        fail(f"cannot write {output}: there is a folder of that name with files in it", 2)
    if output.exists() and not output.is_dir() and output.suffix.lower() != ".zip":
        fail(f"cannot write {output}: it is a file; give a new folder, or a name that ends in .zip", 2)


def _contents(paths: list[str], folder: Path, sidecar: Sidecar | None, wanted: _Wanted) -> Contents:
    """The scrubbed capture in the folder, and what is said of it; exits when it does not tell the same."""
    from ..analyzer import _core
    from ..reports import attachment, scrub

    written = folder / "capture"
    with written.open("wb") as out:
        report = write_scrubbed(paths, out, wanted.hide_methods, wanted.ports, wanted.quiet)
    target = written.rename(folder / f"capture.{report.format}")
    with busy(wanted.quiet, "comparing the analyses"):
        analysis, evidence, recorded = _same(paths, target, report, sidecar, wanted)
    present = [("capture", target.name), ("html", HTML), ("json", JSON)]
    contents = attachment.Contents(
        analysis=analysis,
        evidence=evidence,
        form=_form(wanted.project, analysis),
        version=_core.__version__,
        files=tuple((name, _WHAT[part]) for part, name in present if part not in wanted.without),
        capture=target.name,
        scrubbed=tuple(scrub.notes(report)),
        recorded=recorded,
        without=wanted.without,
    )
    _write(folder, contents, wanted)
    return contents


def _same(
    paths: list[str], target: Path, report: Report, sidecar: Sidecar | None, wanted: _Wanted
) -> tuple[Analysis, IssueEvidence, Recorded | None]:
    """The scrubbed capture's analysis and what is shown of it, when they are the original's; exits else."""
    from msgspec.structs import replace

    from ..analyzer.decode.runner import DecodeOptions
    from ..analyzer.scrub import analyses, row_differences
    from ..analyzer.views.excerpt import excerpt
    from ..analyzer.views.issue_evidence import collect_evidence
    from ..reports.scrub import differences

    ports, scrubbed = wanted.ports, [str(target)]
    before, after = analyses(paths, scrubbed, report, ports, sidecar)
    _refuse([*differences(before, after), *row_differences(paths, scrubbed, ports)], report)
    if isinstance(after, str):
        tls = any(carries == "tls" for _, _, carries in report.connections)
        reason = "TLS stays encrypted in it, with its secrets too" if tls else after
        fail(
            f"no gRPC traffic is left in the scrubbed capture, which all is made from: {reason}{_why(report)}", NO_GRPC
        )
    shown = collect_evidence(scrubbed, after, ports=ports or [])
    part, first = shown.example, after.capture.first_time_ns or 0
    begin, end = part.start_ns - first, part.end_ns - first
    how = DecodeOptions(ports=ports or [], own_secrets=False)
    original = excerpt(paths, part.connection, stream=part.stream, from_ns=begin, to_ns=end, **how)
    _refuse([] if _drawn(original, report) == _drawn(part) else ["the time line"], report)
    recorded = _recorded(sidecar, original.tables, wanted) if sidecar and after.recording else None
    return replace(after, files=(target.name,)), shown, recorded


def _drawn(part: Excerpt, report: Report | None = None) -> str:
    """A time line as far as RFC 9113 defines its frames; of the capture as it was with the names of the new one."""
    from ..analyzer.scrub import defined, renamed
    from ..analyzer.views.excerpt import rows
    from ..reports import timeline

    tables, frames = renamed(part.tables, report) if report else part.tables, defined(part.frames)
    if part.stream is not None:
        frames = rows(frames, frames.stream == part.stream)
    return timeline.render(dataclasses.replace(part, tables=tables, frames=frames))


def _refuse(differences: list[str], report: Report) -> None:
    """Exits when there are differences."""
    if differences:
        more = f" and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        named = ", ".join(differences[:SHOWN])
        fail(f"nothing is written: the scrubbed capture would differ in {named}{more}{_why(report)}", DIFFERS)


def _why(report: Report) -> str:
    from ..reports.scrub import notes

    return "".join(f"\n  {note}" for note in notes(report))


def _recorded(sidecar: Sidecar, tables: Tables, wanted: _Wanted) -> Recorded:
    """What may be shown of the file beside the capture; `tables` are those of the capture as it was."""
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


def _form(project: Project | None, analysis: Analysis) -> Form:
    """The form asked for, or that of the implementation with the most RPCs, the client's first."""
    from ..reports import attachment

    if project:
        return attachment.named(project.value)
    most = sorted(analysis.connections, key=lambda connection: -connection.rpcs)
    names = [c.client_implementation for c in most] + [c.server_implementation for c in most]
    return attachment.of_implementation(*names)


def _write(folder: Path, contents: Contents, wanted: _Wanted) -> None:
    """The files beside the scrubbed capture."""
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
    """Put the files where they shall be, in a folder or in a zip, whole or not at all; their size as one file."""
    paths = sorted(folder.iterdir(), key=lambda path: (path.name != ISSUE, path.name))
    packed = output.suffix.lower() == ".zip"
    if packed:
        paths = [_pack(paths, folder / "packed")]
    size = sum(path.stat().st_size for path in paths)
    try:
        if packed:
            with replacing(output) as out, paths[0].open("rb") as source:
                shutil.copyfileobj(source, out)
            return size
        with replacing_in(output) as make:
            for path in paths:
                with make(path.name) as out, path.open("rb") as source:
                    shutil.copyfileobj(source, out)
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"cannot write {output}: {error.strerror}", 2)
    return size


def _pack(paths: list[Path], packed: Path) -> Path:
    """Write a zip of the files, without times and rights, which would tell of this machine."""
    import zipfile

    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in paths:
            entry = zipfile.ZipInfo(path.name)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target)
    return packed


def _tell(output: Path, size: int, contents: Contents) -> None:
    """What there is, and what to do with it."""
    from ..reports import attachment

    zipped = output.suffix.lower() == ".zip"
    lines = [f"{output}: for {contents.form.name}; {', '.join([ISSUE, *(name for name, _ in contents.files)])}"]
    lines += contents.scrubbed
    lines += attachment.foreign(contents)
    lines.append(
        f"{ISSUE} is the text: fill its {attachment.blanks(contents)} blanks (marked TO FILL) and read it whole"
    )
    if contents.files:
        lines.append("then attach the zip" if zipped else "then attach the other files as one .zip")
    if size > LARGEST:
        lines.append(f"{size / 1e6:,.0f} MB{'' if zipped else ' before packing'}: GitHub takes 25 MB as one file")
    say("\n  ".join(lines))
