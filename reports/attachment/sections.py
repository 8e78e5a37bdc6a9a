"""Write the parts below the headings of an issue form."""

import re
from collections.abc import Callable, Iterator, Mapping

from ...analyzer.model.finding import Finding
from ...analyzer.model.text import count, duration
from ...analyzer.views.issue_evidence import PacketFacts, Work
from .. import markdown, timeline
from ..shared.markdown_escape import Block, code, fence, folded, items, prose, sentence, shortened, table
from ..shared.quality import find_main, list_implementations
from .contents import Contents
from .forms import FORMS, implementations, of_implementation
from .ruled_out import list_ruled_out

BLANK = "_____"
"""A blank; the comment after it says what the reporter writes there."""
MARK = "<!-- TO FILL: "
"""Beginning of that comment."""
MOST_FINDINGS = 6
"""Findings shown with their packets."""
MOST_PACKETS = 8
"""Packets shown for a finding."""
MOST_LINES = 40
"""Lines of the timeline."""
MOST_IMPLEMENTATIONS = 5
"""Implementations named for each side."""
LONGEST_COMMAND = 4_000
"""Characters of the command line that are shown."""
TIMELINE = 14_000
"""Most bytes of the timeline; a larger one is drawn with fewer lines."""

_HINT = re.compile(r"^ +--from \S+ continues here, --limit 0 draws everything\n", re.MULTILINE)
"""The timeline's hint for users of the command, useless in an issue."""

Part = Callable[[Contents], Iterator[Block]]


def blank(what: str) -> str:
    """Write a blank for what only the reporter knows."""
    return f"{BLANK} {MARK}{what} -->"


# versions


def grpc_version(contents: Contents) -> Iterator[Block]:
    """Name the implementations at both ends, and say how they are known."""
    c = contents.analysis.connections
    lines = []
    for place, side in enumerate(("Client", "Server")):
        for implementation, inferred in sorted({list_implementations(x)[place] for x in c}, key=str)[
            :MOST_IMPLEMENTATIONS
        ]:
            lines.append(f"{side}: {_describe_implementation(implementation, inferred, contents, side.lower())}")
    yield Block(items(lines))


def _describe_implementation(name: str | None, inferred: bool, contents: Contents, side: str) -> str:
    asked = f"name and version of the {side}'s gRPC library; delete the line if you do not know"
    if name is None:
        return f"not in the capture: {blank(asked)}"
    if inferred:
        return f"{code(name)}, inferred from its HTTP/2 frames; version: {blank(asked)}"
    return f"{code(name)} (from the {side}'s user-agent header in the capture)"


def _make_line(text: str) -> Part:
    def part(contents: Contents) -> Iterator[Block]:
        yield Block(text)

    return part


_LANGUAGES = {
    "grpc-python": "Python",
    "grpc-c++": "C++",
    "grpc-ruby": "Ruby",
    "grpc-php": "PHP",
    "grpc-objc": "Objective-C",
    "grpc-csharp": "C#",
}


def language(contents: Contents) -> Iterator[Block]:
    """Name the client's language, as its user-agent says."""
    agents = {c.client_implementation or "" for c in contents.analysis.connections}
    known = sorted({name for agent in agents for start, name in _LANGUAGES.items() if agent.startswith(start)})
    client = f"{', '.join(known)} (client); server: " if known else ""
    yield Block(f"Language: {client}{blank('C++, Python, Ruby, PHP or another')}")


def system(contents: Contents) -> Iterator[Block]:
    """Name the operating systems, as far as the sidecar says."""
    recorded, lines = contents.recorded, []
    for side in ("client", "server"):
        asked = f"operating system and version of the {side}'s host, such as Debian 13"
        known = recorded is not None and recorded.side in (side, "both") and recorded.kernel
        kernel = f"{code(recorded.kernel)} (recorded with the capture); distribution: " if recorded and known else ""
        lines.append(f"{side.capitalize()}'s host: {kernel}{blank(asked)}")
    yield Block(items(lines))


def node_environment(contents: Contents) -> Iterator[Block]:
    """Fill in the list of grpc-node's form."""
    kernel = f"{code(contents.recorded.kernel)}; " if contents.recorded and contents.recorded.kernel else ""
    names = sorted({x.client_implementation for x in contents.analysis.connections if x.client_implementation})
    seen = ", ".join(code(name) for name in names[:MOST_IMPLEMENTATIONS])
    package = f"{seen} (client's user-agent header in the capture)" if seen else blank("such as @grpc/grpc-js@1.12.0")
    servers = {list_implementations(connection)[1] for connection in contents.analysis.connections}
    lines = [
        f" - OS name, version and architecture: {kernel}{blank('such as Linux Debian 13 amd64')}",
        f" - Node version: {blank('output of node --version')}",
        f" - Node installation method: {blank('such as nvm')}",
        f" - If applicable, compiler version: {blank('or: not applicable')}",
        f" - Package name and version: {package}",
    ]
    for implementation, inferred in sorted(servers, key=str)[:MOST_IMPLEMENTATIONS]:
        lines.append(f" - Server: {_describe_implementation(implementation, inferred, contents, 'server')}")
    yield Block("\n".join(lines))


# what was done


def did(contents: Contents) -> Iterator[Block]:
    """Ask for the reporter's own description."""
    yield Block(blank("one or two sentences: what your program does, and a link to code that shows it if you can"))


def work(contents: Contents) -> Iterator[Block]:
    """Describe the traffic that would reproduce the capture."""
    analysis, rows = contents.analysis, contents.evidence.work
    connections = analysis.connections
    most = max((c.max_concurrent_rpcs for c in connections), default=0)
    round_trips = sorted({duration(c.min_rtt_ns) for c in connections if c.min_rtt_ns is not None and c.rpcs})
    rtt = "unknown" if not round_trips else round_trips[0] if len(round_trips) == 1 else " to ".join(_span(contents))
    head = (
        "Method",
        "RPCs",
        "Messages to server / to client",
        "Request bytes (largest)",
        "Response bytes (largest)",
        "Interval between starts",
    )
    drawn = table(head, [_show_work(row) for row in rows], right=(1, 2, 3, 4, 5))
    left = len(analysis.methods) - len(rows)
    more = f"\n\n... and {count(left, 'more method')}" if left > 0 else ""
    text = (
        f"The traffic in the capture, for a reproduction: {count(analysis.totals.rpcs, 'RPC')} on "
        f"{count(analysis.totals.connections, 'connection')}, at most {most:,} concurrent on a connection; smallest "
        f"round trip: {rtt}. Sizes are of gRPC messages as sent, medians over RPCs."
    )
    yield Block(f"{text}\n\n{drawn}{more}", "the work in the capture", 11)


def _span(contents: Contents) -> tuple[str, str]:
    known = [c.min_rtt_ns for c in contents.analysis.connections if c.min_rtt_ns is not None and c.rpcs]
    return duration(min(known)), duration(max(known))


def _show_work(row: Work) -> tuple[str, ...]:
    up, down = row.messages
    sizes = [f"{median:,} ({largest:,})" for median, largest in (row.request_bytes, row.response_bytes)]
    gap = "-" if row.gap_ns is None else duration(row.gap_ns) if row.gap_ns >= 1_000 else "immediately"
    name = code(row.method or "(method not readable)")
    return name, f"{row.rpcs:,}", f"{up:,} / {down:,}", *sizes, gap


def command(contents: Contents) -> Iterator[Block]:
    """Show the command that was recorded."""
    recorded = contents.recorded
    if not recorded or not recorded.command:
        yield Block(f"Command or program: {blank('how it is started, without secrets; or delete the line')}")
        return
    text = "The capture was recorded while this command ran."
    text += " Words that may be private are replaced by `…`." if recorded.masked else ""
    text += f" It ended with exit code {recorded.exit_code}." if recorded.exit_code is not None else ""
    shown = fence(shortened(recorded.command, LONGEST_COMMAND))
    asked = blank("what … stands for, as far as it matters, or: does not matter")
    yield Block("\n\n".join([text, shown, *([f"Hidden words: {asked}"] if recorded.masked else [])]))


def recorded(contents: Contents) -> Iterator[Block]:
    """Say where the capture was taken."""
    vantages = {connection.vantage for connection in contents.analysis.connections}
    names = {"client": "client's host", "server": "server's host", "middle": "between both hosts"}
    place = (
        f"at the {names[vantages.pop()]} (inferred from packet times)"
        if len(vantages) == 1 and vantages <= {*names}
        else ""
    )
    yield Block(f"Captured {place or blank('where: client, server, or both on one host')}.")


def expected(contents: Contents) -> Iterator[Block]:
    """Ask for the reporter's expectation, after the cost that the packets show."""
    finding = find_main(contents.analysis)
    lost = ""
    if finding and finding.lost_ns and finding.share:
        lost = (
            f"According to the packets, {code(finding.id)} cost the RPCs {duration(finding.lost_ns)} in total; "
            f"all RPCs together took {duration(sum(contents.analysis.budget.values()))} on the wire.\n\n"
        )
    yield Block(
        lost + blank("what you expected, such as a latency, a throughput or a behaviour of the library, and why")
    )


# what was seen


def summary(contents: Contents) -> Iterator[Block]:
    """State the verdict, and how it was obtained."""
    finding = find_main(contents.analysis)
    if finding is None:
        yield Block(blank("what you saw, such as latencies that your program measured; the packets show no cause"))
    sure = f" Confidence: {finding.confidence}." if finding else ""
    yield Block(
        f"{sentence(contents.analysis.verdict.text, markdown.VERDICT)}\n\n"
        f"grpcdiag {contents.version}, an analyzer of gRPC traffic, obtained this from a packet capture: it sees "
        f"packets, no code.{sure} Packets have the same numbers as in Wireshark. Addresses are replaced; "
        f"sizes and times are as recorded.\n\n{markdown.capture(contents.analysis, place=False)}"
    )


def budget(contents: Contents) -> Iterator[Block]:
    """Show the RPC time by cause."""
    yield Block(f"Time by cause:\n\n{markdown.budget(contents.analysis)}")


def findings(contents: Contents) -> Iterator[Block]:
    """Show the findings with their packets."""
    costly = markdown.costly(contents.analysis)
    for number, finding in enumerate(costly[:MOST_FINDINGS]):
        if not number:
            yield Block(_show_finding(finding))
            yield Block(_show_packets(contents, finding), "packets of the costliest finding", 8)
            yield Block(_show_settings(contents, finding), "settings", 10)
        else:
            parts = (_show_finding(finding), _show_packets(contents, finding), _show_settings(contents, finding))
            yield Block("\n\n".join(filter(None, parts)), "findings that cost less", 40 + number)
    also = markdown.also_seen([*costly[MOST_FINDINGS:], *markdown.remarks(contents.analysis)])
    yield Block(also.replace("### ", "#### ", 1), "what else was seen", 25)


def _show_finding(finding: Finding) -> str:
    title = f"#### {code(finding.id)}: {sentence(finding.title, markdown.TITLE)}"
    return f"{title}\n\n{sentence(finding.explanation)}\n\n{markdown.cost(finding)}."


def _show_packets(contents: Contents, finding: Finding) -> str:
    shown, rows = finding.evidence[:MOST_PACKETS], []
    for item in sorted(shown, key=lambda e: e.packet):
        time = markdown.seconds(contents.analysis, item.time_ns)
        facts = contents.evidence.packets.get(item.packet)
        rows.append((str(item.packet), time, *_describe_packet(facts), prose(item.what, markdown.WHAT)))
    drawn = table(("No.", "Time (s, UTC)", "Direction", "TCP payload", "What it shows"), rows, right=(0, 1))
    rest, more = "" if "json" in contents.without else " in `analysis.json`", len(finding.evidence) - len(shown)
    drawn += f"\n\n... and {count(more, 'more packet')}{rest}" if more > 0 else ""
    return f"Packets{'' if 'capture' in contents.without else f' of `{contents.capture}`'} that show it:\n\n{drawn}"


def _describe_packet(facts: PacketFacts | None) -> tuple[str, str]:
    if facts is None:
        return "-", "-"
    arrow = "client → server" if facts.direction == 0 else "client ← server"
    what = f"{facts.payload_bytes:,} B" if facts.payload_bytes else facts.flags or "0 B (ACK)"
    frames = f" {code(' '.join(facts.frames))}" if facts.frames else ""
    return arrow, f"{what}{frames}{f' ({facts.note})' if facts.note else ''}"


def _show_settings(contents: Contents, finding: Finding) -> str:
    found = markdown.remedies(finding, lambda remedy: not _is_unrelated(contents, remedy.implementation))
    return found[0].replace("What to do:", "Settings known to change or explain it:", 1) if found else ""


def _is_unrelated(contents: Contents, implementation: str) -> bool:
    """Say whether a setting belongs to an implementation that is neither at an end nor the form's."""
    forms = {contents.form.name, *(of_implementation(name).name for name in implementations(contents.analysis))}
    others = [knob for form in FORMS if form.name not in forms for knob in form.knobs]
    return implementation.startswith((*others, "grpc-dotnet"))


def example(contents: Contents) -> Iterator[Block]:
    """Draw one example as a timeline."""
    if "timeline" in contents.without:
        return
    of, drawn = contents.evidence.of, ""
    for lines in (MOST_LINES, 20, 10):
        drawn = _HINT.sub("", timeline.render(contents.evidence.example, width=100, limit=lines))
        if len(drawn.encode()) <= TIMELINE:
            break
    else:
        drawn = drawn.encode()[:TIMELINE].decode(errors="ignore")
    title = f"Timeline of one {code(of)}" if of else "Timeline of the slowest RPC"
    text = f"#### {title}\n\nTimes are seconds after the first packet; `#` numbers are packets.\n\n{fence(drawn)}"
    yield Block(text, "the timeline", 12)


def ruled_out(contents: Contents) -> Iterator[Block]:
    """List what was looked for and not found, and what could not be judged."""
    if "ruled-out" in contents.without:
        return
    rows = [(code(name), prose(what), seen) for name, what, seen in list_ruled_out(contents.analysis)]
    if rows:
        intro = "Looked for in the same capture, and not found or too small to matter:"
        drawn = table(("Finding", "What it means", "Seen"), rows)
        yield Block(folded("What was ruled out, and how", f"{intro}\n\n{drawn}"), "what was ruled out", 20)
    unjudged = markdown.not_judged(contents.analysis)
    if unjudged:
        text = folded("What could not be judged from this capture", items(unjudged))
        yield Block(text, "what could not be judged", 19)
    notes = [*markdown.notes(contents.analysis), *(prose(note, markdown.NOTE) for note in contents.scrubbed)]
    if notes:
        yield Block(folded("Notes on the capture", items(notes)), "notes on the capture", 18)


def methods(contents: Contents) -> Iterator[Block]:
    """Show the latencies by method."""
    yield Block(folded("Latency by method", markdown.methods(contents.analysis)), "latency by method", 22)


def connections(contents: Contents) -> Iterator[Block]:
    """Show the connections."""
    yield Block(folded("Connections", markdown.connections(contents.analysis)), "the connections", 24)


def files(contents: Contents) -> Iterator[Block]:
    """List the attached files."""
    if not contents.files:
        return
    lines = [f"`{name}`: {what}" for name, what in contents.files]
    yield Block(f"#### Attached\n\nFiles: {blank('drag the .zip of these files here')}\n\n{items(lines)}")


PARTS: Mapping[str, Part] = {
    "go_version": _make_line(blank("output of go version")),
    "compiler_version": _make_line(blank("such as Python 3.12, or gcc 14")),
    "jdk_version": _make_line(f"JDK: {blank('output of java -version')}"),
    "runtime_version": _make_line(f"Language and runtime: {blank('such as Go 1.25, or Python 3.12')}"),
    "crates": _make_line(blank("output of: cargo tree | grep tonic")),
    "affected_crates": _make_line(blank("the crates concerned, such as tonic or h2; or delete this section")),
    "else_": _make_line(blank("anything else; or: no")),
    **{part.__name__: part for part in (language, system, node_environment, did, work, command, recorded, expected)},
    **{part.__name__: part for part in (grpc_version, summary, budget, findings, example, ruled_out, methods)},
    **{part.__name__: part for part in (connections, files)},
}
"""The parts by the names that forms use."""
