"""`analyze` without `--details` fits a screen, and says what the whole report begins with."""

from __future__ import annotations

from support import recorded, run_here

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.reports import terminal
from grpcdiag.reports.shared.quality import find_main


def check_screen(analysis: Analysis) -> None:
    """The brief report fits a screen, and the whole one renders, for any capture (`test_every_capture`)."""
    grave = [finding for finding in analysis.findings if finding.severity != "info" and finding.part_of is None]
    for width in (80, 120) if grave else (80,):
        text = terminal.render_screen(analysis, width=width)
        assert text.count("\n") <= terminal.SCREEN, text
        assert analysis.verdict.text.split()[0] in text
        assert not grave or any(finding.id in text for finding in grave)
        main = find_main(analysis)
        assert main is None or main.id in text
    whole = terminal.render(analysis)
    counted = f"{analysis.totals.rpcs:,} RPC" if analysis.totals.connections or not analysis.tls else "without secrets"
    assert counted in " ".join(whole.split())
    assert "verdict" in whole
    assert "\x1b" not in whole


def test_the_worst_finding_has_its_proof_and_one_remedy() -> None:
    files = [recorded("field-cases/ably-staggered-veth.pcap.zst")]
    analysis = analyze(files)
    text = terminal.render_screen(analysis)
    (finding,) = [one for one in analysis.findings if one.severity == "critical"]
    shown = [item for item in finding.evidence if f"#{item.packet} " in text]
    assert len(shown) == 3
    assert finding.remedies[0].knob.split("(")[0] in text
    assert "Wireshark" not in text
    assert "more (packets and remedies): add --details" in text


def test_the_whole_report_is_asked_for() -> None:
    file = recorded("field-cases/ably-staggered-veth.pcap.zst")
    brief, whole = run_here("analyze", file), run_here("analyze", file, "--details")
    assert "Wireshark" in whole.text
    assert "Wireshark" not in brief.text
    assert len(brief.text) < len(whole.text)
