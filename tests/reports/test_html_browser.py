"""The page in a real browser: it comes to life, zooms, leads from a finding to its packets, and sends nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec.structs import replace
from support import PATIENCE_S, grpcdiag, recorded, recording, synthetic, wait_until

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.two_captures import analyze_files
from grpcdiag.analyzer.views.page_data import Bounds, collect_page_data
from grpcdiag.fixtures.bench.multiply import multiply
from grpcdiag.reports import html
from grpcdiag.reports.compare import html as compare_html
from grpcdiag.reports.compare.comparison import compare

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

Opened = Callable[..., "Page"]
READY = "#chart[data-ready=yes]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium as the system has it, driven by Playwright."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    must = os.environ.get("GRPCDIAG_REQUIRE_TOOLS") == "1"
    if path is None:
        pytest.fail("chromium is not installed") if must else pytest.skip("chromium is not installed")
    if not must:
        pytest.importorskip("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def new_page(browser: Browser, **options: Any) -> Page:
    context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
    context.set_default_timeout(PATIENCE_S * 1000)
    return context.new_page()


@pytest.fixture(scope="module")
def plain(browser: Browser) -> Page:
    """The page of tests that want no options: another one takes a process of its own, and three times the time."""
    return new_page(browser)


@pytest.fixture
def opened(browser: Browser, plain: Page, tmp_path: Path) -> Iterator[Opened]:
    """Opens a page; at the end nothing may have been asked of any network, and nothing complained of."""
    views: list[Page] = []
    asked: list[str] = []
    said: list[str] = []
    heard: dict[str, Callable[[Any], None]] = {
        "request": lambda request: asked.append(request.url),
        "console": lambda message: said.append(message.text),
        "pageerror": lambda error: said.append(str(error)),
        "dialog": lambda dialog: said.append(dialog.message),
    }

    def open_page(text: str, *, ready: bool = True, **options: Any) -> Page:
        path = tmp_path / f"report{len(views)}.html"
        path.write_text(text, encoding="utf-8")
        view = new_page(browser, **options) if options or views else plain
        views.append(view)
        for event, hear in heard.items():
            view.on(cast(Any, event), hear)
        view.goto(path.as_uri())
        if ready:
            view.wait_for_selector(READY)
        return view

    yield open_page
    for view in views:
        for event, hear in heard.items():
            view.remove_listener(event, hear)
        if view is not plain:
            view.context.close()
    plain.mouse.move(0, 0)
    plain.goto("about:blank")
    own = {"data:,", *((tmp_path / f"report{number}.html").as_uri() for number in range(len(views)))}
    assert [url for url in asked if url not in own] == []
    assert said == []


def rendered(*paths: str, bounds: Bounds | None = None) -> str:
    analysis = analyze(list(paths))
    return html.render(analysis, collect_page_data(list(paths), analysis, **({"bounds": bounds} if bounds else {})))


@pytest.fixture(scope="module")
def rtt() -> str:
    return rendered(recorded("rtt205-go-16000.pcap"))


def span(view: Page) -> tuple[int, int]:
    """What the chart shows, nanoseconds after the first packet."""
    view.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    chart = view.locator("#chart")
    return int(chart.get_attribute("data-from") or 0), int(chart.get_attribute("data-to") or 0)


def picture(view: Page) -> str:
    """What the chart draws, when it draws nothing else any more."""
    drawn = ["", "-"]

    def drawn_again() -> bool:
        span(view)
        drawn[:] = drawn[1], view.evaluate("document.querySelector('#chart canvas').toDataURL()")
        return drawn[0] == drawn[1]

    wait_until(drawn_again)
    return drawn[1]


def items(view: Page) -> int:
    return int(view.locator("#chart").get_attribute("data-items") or 0)


def pixels(view: Page) -> int:
    return colours(view.locator("#chart"))


def colours(chart: Locator) -> int:
    """How many colours the chart has: an empty canvas has one."""
    script = """(chart) => { const c = chart.querySelector('canvas');
      const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const s = new Set();
      for (let i = 0; i < d.length; i += 4) s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return s.size; }"""
    return int(chart.evaluate(script))


def test_it_comes_to_life_and_zooms(opened: Opened, rtt: str) -> None:
    view = opened(rtt)
    assert pixels(view) > 10
    assert not view.locator("#problem").is_visible()
    first, last = span(view)
    assert first < 0 < 7_674_614_000 < last
    assert "connection 0, 0.000000 s to 7.674614 s" in view.locator("#status").inner_text()
    view.click("#closer")
    closer = span(view)
    assert closer[1] - closer[0] == pytest.approx((last - first) / 2, rel=0.01)
    box = view.locator("#chart").bounding_box()
    assert box
    view.mouse.move(box["x"] + 700, box["y"] + 60)
    view.keyboard.down("Control")
    for _ in range(5):
        before = span(view)
        view.mouse.wheel(0, -300)
        wait_until(lambda before=before: span(view) != before)
    view.keyboard.up("Control")
    wheeled = span(view)
    assert wheeled[1] - wheeled[0] < (closer[1] - closer[0]) * 0.9
    view.mouse.down()
    view.mouse.move(box["x"] + 500, box["y"] + 60, steps=4)
    view.mouse.up()
    wait_until(lambda: span(view)[0] > wheeled[0])
    dragged = span(view)
    assert dragged[1] - dragged[0] == pytest.approx(wheeled[1] - wheeled[0], rel=0.01)
    view.click("#whole")
    assert span(view) == (first, last)


@pytest.mark.parametrize("name", ["rpc-errors", "max-concurrent-streams"])
def test_what_is_drawn_depends_on_the_range_alone(opened: Opened, name: str) -> None:
    """Marks are elements that are used again: nothing of an earlier range stays on them."""
    view = opened(rendered(recorded(f"{name}.pcap")))
    view.click("#whole")
    first = picture(view)
    for _ in range(6):
        view.click("#closer")
        span(view)
    assert picture(view) != first
    view.click("#whole")
    assert picture(view) == first


def test_the_wheel_alone_scrolls_the_page(opened: Opened, rtt: str) -> None:
    view = opened(rtt)
    view.locator("#chart").scroll_into_view_if_needed()
    before, top = span(view), view.evaluate("scrollY")
    view.locator("#chart").hover()
    view.mouse.wheel(0, 200)
    wait_until(lambda: view.evaluate("scrollY") != top)
    assert span(view) == before


def test_from_a_finding_to_its_packets(opened: Opened, rtt: str) -> None:
    view = opened(rtt)
    view.locator("button.see[data-packet='54']").first.click()
    begin, end = span(view)
    assert begin < 2_823_837_000 and end > 3_029_081_000  # the wait that packet 54 begins, whole
    assert end - begin < 1_000_000_000
    details = view.locator("#details")
    assert "packet #54 and those around it on connection 0" in details.inner_text()
    here = details.locator("tr.here")
    assert here.count() == 1
    assert "14,080 B" in here.inner_text() and "evidence of slow-start-after-idle" in here.inner_text()
    assert view.evaluate("document.activeElement.id") == "details"
    details.get_by_role("button", name="#55").click()
    assert "packet #55" in details.locator("h3").inner_text()
    view.locator("button.all").first.click()
    begin, end = span(view)
    assert begin < 2_823_837_000 and end > 5_851_630_000
    view.get_by_role("link", name="back to slow-start-after-idle").click()
    assert view.url.endswith("#finding-1")


def test_hover_and_click_on_the_chart(opened: Opened, rtt: str) -> None:
    view = opened(rtt)
    view.locator("button.see[data-rpc]").first.click()
    assert "411 ms" in view.locator("#details").inner_text()
    box = view.locator("#chart").bounding_box()
    assert box
    for row, words in ((1, "/lab.v1.Lab/Echo"), (2, "congestion_window")):
        view.mouse.move(box["x"] + 300, box["y"] + 22 + 22 * row + 11)
        wait_until(lambda words=words: words in view.locator(".hint").first.inner_text())
    view.mouse.click(box["x"] + 300, box["y"] + 22 + 22 * 2 + 11)
    text = view.locator("#details").inner_text()
    assert "blocked interval: 205 ms congestion_window" in text
    assert "14,080 B" in text and "stopped at" in text
    view.locator("#details").get_by_role("button", name="zoom to it").click()
    begin, end = span(view)
    assert end - begin == pytest.approx(205_200_000 * 1.12, rel=0.02)


def test_with_the_keyboard_alone(opened: Opened, rtt: str) -> None:
    view = opened(rtt)
    for _ in range(80):
        view.keyboard.press("Tab")
        if view.evaluate("document.activeElement.id") == "chart":
            break
    assert view.evaluate("document.activeElement.id") == "chart"
    whole = span(view)
    view.keyboard.press("ArrowUp")
    closer = span(view)
    assert closer[1] - closer[0] < whole[1] - whole[0]
    view.keyboard.press("ArrowRight")
    assert span(view)[0] > closer[0]
    view.keyboard.press("ArrowLeft")
    view.keyboard.press("ArrowDown")
    assert span(view) == pytest.approx(whole, abs=2_000_000)
    view.keyboard.press("Home")
    view.keyboard.press("n")
    assert "/lab.v1.Lab/Echo" in view.locator("#details").inner_text()
    view.keyboard.press("n")
    assert "blocked interval: 205 ms congestion_window" in view.locator("#details").inner_text()
    view.keyboard.press("Enter")
    begin, end = span(view)
    assert end - begin < 300_000_000
    view.keyboard.press("p")
    assert "/lab.v1.Lab/Echo" in view.locator("#details").inner_text()
    # a piece of evidence is a button, which Enter presses
    view.locator("button.see[data-packet='45']").first.focus()
    view.keyboard.press("Enter")
    assert "packet #45" in view.locator("#details").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dark_and_light(opened: Opened, rtt: str, scheme: str) -> None:
    view = opened(rtt, color_scheme=scheme)
    ground = "() => getComputedStyle(document.body).backgroundColor"
    colours = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}
    other = "dark" if scheme == "light" else "light"
    assert view.evaluate(ground) == colours[scheme]
    first = picture(view)
    view.click(f"[data-theme-choice={other}]")
    assert view.evaluate(ground) == colours[other]
    assert view.locator(f"[data-theme-choice={other}]").get_attribute("aria-pressed") == "true"
    wait_until(lambda: picture(view) != first)
    view.click("[data-theme-choice=auto]")
    assert view.evaluate(ground) == colours[scheme]


@pytest.mark.parametrize("width", [360, 768])
def test_a_phone_s_width(opened: Opened, rtt: str, width: int) -> None:
    view = opened(rtt, viewport={"width": width, "height": 740})
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    view.locator("button.see[data-packet='45']").first.click()
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    assert pixels(view) > 10


def test_without_its_script(opened: Opened, rtt: str) -> None:
    view = opened(rtt, ready=False, java_script_enabled=False)
    text = view.inner_text("body")
    assert "tcp_slow_start_after_idle" in text and "411 ms" in text and "#45" in text
    assert "scripts may not run here" in text
    assert not view.locator("#status").is_visible()
    assert view.locator("button:visible:enabled").count() == 0


def test_in_print(opened: Opened, rtt: str) -> None:
    view = opened(rtt, color_scheme="dark")
    view.emulate_media(media="print")
    view.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert view.locator("details:not([open])").count() == 0
    assert not view.locator(".controls").is_visible()
    view.emulate_media(media="screen")
    view.evaluate("dispatchEvent(new Event('afterprint'))")
    assert view.locator("html").get_attribute("data-theme") == "auto"
    assert len(view.pdf()) > 10_000


def test_what_is_injected_does_not_run(browser: Browser, rtt: str, tmp_path: Path) -> None:
    """Were markup to slip into the page, its policy would not let it act. The browser itself says so."""
    slipped = (
        '<img src="https://example.org/x.png"><script>document.title = "ran"</script><p onclick="alert(1)" id="p">x</p>'
    )
    path = tmp_path / "slipped.html"
    path.write_text(rtt.replace("</main>", slipped + "</main>"), encoding="utf-8")
    view = browser.new_page()
    said: list[str] = []
    failed: list[str | None] = []
    view.on("console", lambda message: said.append(message.text))
    view.on("requestfailed", lambda request: failed.append(request.failure))
    view.goto(path.as_uri())
    view.wait_for_selector(READY)
    view.click("#p")
    assert view.title() != "ran"
    assert failed == ["csp"]
    assert sum("Content Security Policy" in text for text in said) == len(said) == 3
    view.close()


def test_several_connections(opened: Opened) -> None:
    view = opened(rendered(synthetic("failures-pool").file))
    numbers = view.locator("#connection option").evaluate_all("all => all.map((one) => one.value)")
    assert numbers[0] == "-1" and len(numbers) > 2
    assert items(view) > 0
    box = view.locator("#chart").bounding_box()
    assert box
    view.locator("button.see[data-connection]").nth(1).click()
    assert view.locator("#chart").get_attribute("data-connection") == numbers[2]
    view.select_option("#connection", numbers[0])
    view.locator("#chart").focus()
    view.keyboard.press("n")
    assert view.locator("#chart").get_attribute("data-connection") == numbers[1]
    view.fill("#packet", "999999")
    view.keyboard.press("Enter")
    assert "This page does not have it" in view.locator("#details").inner_text()


@pytest.mark.parametrize("name", ["rpc-errors", "max-concurrent-streams", "too-many-pings", "impl-java"])
def test_other_recordings(opened: Opened, name: str) -> None:
    view = opened(rendered(recorded(f"{name}.pcap")))
    assert pixels(view) > 10
    view.evaluate("for (let i = 0; i < 12; i += 1) document.getElementById('closer').click()")
    assert span(view)[1] - span(view)[0] > 0
    if view.locator("button.see[data-packet]").count():
        view.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        view.locator("button.see[data-packet]").first.click()
        wait_until(lambda: view.locator("#details tr.here").count() == 1)


DRAWN = {
    "lab/stream-window-stall.pcap": "limit",
    "lab/ping-storm.pcap.gz": "PING",
    "lab/client-idle-gap.pcap.gz": "no RPC is open",
    "lab/request-batching.pcap.gz": "RPCs that begin",
    "lab/connection-churn.pcap": "with RPCs",
    "lab/loss-recovery.pcap.gz": "until retransmitted",
    "max-concurrent-streams.pcap": "limit",
    "lab/network-queueing.pcap.gz": "queued from here on",
    "rpc-errors.pcap": "failed",
}
"""Of each kind of picture a capture, and words of its key."""


def test_each_kind_of_picture_is_drawn(opened: Opened) -> None:
    """On one page: the first finding with a picture of each capture."""
    analyses = [analyze([recorded(name)]) for name in DRAWN]
    pages = [collect_page_data([recorded(name)], one) for name, one in zip(DRAWN, analyses, strict=True)]
    found = []
    for one, page, words in zip(analyses, pages, DRAWN.values(), strict=True):
        pairs = zip(one.findings, page.pictures, strict=True)
        found.append(next(pair for pair in pairs if words in str(pair[1]) or words == "failed"))
    findings, pictures = zip(*found, strict=True)
    text = html.render(replace(analyses[-1], findings=findings), replace(pages[-1], pictures=pictures))
    view = opened(text)
    view.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    keys = []
    for figure in view.locator("figure[data-picture]").all():
        figure.scroll_into_view_if_needed()
        wait_until(lambda figure=figure: figure.get_attribute("data-drawn") == "yes")
        assert colours(figure) > 10
        assert figure.locator(".plot").get_attribute("role") == "img"
        keys.append(figure.locator(".keys").inner_text())
    assert len(keys) == len(DRAWN)  # the picture of all calls is that of the failed ones
    assert all(any(words in key for key in keys) for words in DRAWN.values())
    assert view.evaluate("document.documentElement.scrollWidth") <= 1280


def test_without_a_finding_only_latencies_are_drawn(opened: Opened) -> None:
    view = opened(rendered(recorded("lab/ping-storm-control.pcap.gz")))
    names = view.locator("figure[data-picture] .keys").all_inner_texts()
    assert names and not any("PING" in name for name in names)


def test_the_picture_of_the_verdict_comes_first_and_leads_to_the_timeline(opened: Opened, rtt: str) -> None:
    view = opened(rtt)
    after = view.locator("#verdict + figure")
    assert "congestion window where it blocked" in after.inner_text()
    after.get_by_role("button", name="Show this range in the timeline").click()
    begin, end = span(view)
    assert begin < 5_646_354_000 and 5_851_630_000 < end < 7_000_000_000
    view.click("[data-theme-choice=dark]")
    assert colours(after) > 10


def test_tools_around_the_text(opened: Opened) -> None:
    view = opened(rendered(recorded("rpc-errors.pcap")))
    view.locator(".filters .copy").first.click()
    wait_until(lambda: view.locator(".filters .copy").first.inner_text() == "copied")
    counts = view.locator("#methods tbody tr td:nth-child(2)")
    for order in ("descending", "ascending"):
        view.locator("#methods th").nth(1).get_by_role("button").click()
        assert view.locator(f"#methods th[aria-sort={order}]").count() == 1
        assert counts.all_inner_texts() == (["300", "1", "1"] if order == "descending" else ["1", "1", "300"])
    view.fill("#search", "NoSuchMethod")
    assert view.locator("#methods tbody tr:visible").count() == 1
    view.fill("#search", "")
    assert view.locator("#methods tbody tr:visible").count() == 3
    view.locator("button.see[data-rpc]").first.click()
    seen = span(view)
    link = view.locator("#moment").get_attribute("href")
    view.click("#whole")
    assert span(view) != seen
    view.evaluate(f"location.hash = '{link}'")
    wait_until(lambda: span(view) == seen)
    view.evaluate("location.hash = '#finding-2'")
    wait_until(lambda: view.locator("#finding-2").get_attribute("open") is not None)


def test_a_page_of_tables_has_the_same_tools(opened: Opened) -> None:
    runs = [analyze([recorded(f"{name}.pcap")]) for name in ("rpc-errors", "impl-java")]
    view = opened(compare_html.render(compare(runs, [])), ready=False)
    view.click("[data-theme-choice=dark]")
    assert view.evaluate("document.documentElement.dataset.theme") == "dark"
    rows = view.locator(".scroll tbody tr")
    view.fill("#search", "p99")
    assert 0 < rows.filter(visible=True).count() < rows.count()


def test_80_rpcs(opened: Opened, tmp_path: Path) -> None:
    source, path = Path(recorded("deadline-exceeded.pcap")), tmp_path / "twice.pcap"
    multiply(source, path, 2 * source.stat().st_size)
    assert analyze([str(path)]).totals.rpcs == 80
    view = opened(rendered(str(path)))
    assert_usable(view)
    view.select_option("#connection", "1")
    assert_usable(view)


def assert_usable(view: Page) -> None:
    """The chart never draws more than can be seen, and stays so when looked at closely."""
    assert 0 < items(view) < 12_000
    for _ in range(4):
        view.click("#closer")
        span(view)
        assert items(view) < 12_000
    view.click("#whole")


def test_very_many_rpcs(opened: Opened, tmp_path: Path) -> None:
    """12,000 RPCs of many connections; 100,000 and more with GRPCDIAG_TEST_LARGE=1."""
    rpcs = 110_000 if os.environ.get("GRPCDIAG_TEST_LARGE") == "1" else 12_000
    source, path = Path(recorded("ydb-unary-single-inflight1.pcap")), tmp_path / "large.pcap"
    multiply(source, path, source.stat().st_size * rpcs // 3_000)
    analysis = analyze([str(path)])
    assert analysis.totals.rpcs >= rpcs
    text = html.render(analysis, collect_page_data([str(path)], analysis, bounds=Bounds(packets=20_000, frames=80_000)))
    assert len(text) < 5_000_000
    view = opened(text)
    assert "of the whole capture" in view.locator(".drawn").inner_text()
    assert_usable(view)
    view.select_option("#connection", "0")
    assert_usable(view)
    view.locator("button.see[data-rpc]").first.click()
    assert view.locator("#details h3").inner_text() == analysis.methods[0].method
    assert items(view) > 2  # its frames and packets are there


def test_both_ends(opened: Opened) -> None:
    ends = [recording("rtt205-go-16000", side).files[0] for side in ("client", "server")]
    analysis: Analysis = analyze_files(ends, described=lambda files: (None, ()))
    assert analysis.ends is not None
    view = opened(html.render(analysis, collect_page_data(analysis.ends.client.files, analysis)))
    assert view.locator("#ends").is_visible()
    assert pixels(view) > 10


def test_recorded_threads_have_a_lane_under_the_rpcs(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / "threads.html"
    done = grpcdiag("analyze", recorded("processes/cpu-quota.pcap.zst"), "--format", "html", "-o", str(path))
    assert done.code == 0, done.err
    view = opened(path.read_text())
    legend = view.locator("#legend").inner_text()
    assert "threads, until the side sent" in legend
    assert "throttled" in legend
    view.evaluate("location.hash = '#at-0-150000000-190000000'")  # between packets 479 and 480
    wait_until(lambda: "#at-0-150000000-" in str(view.locator("#moment").get_attribute("href")))
    lane = view.locator("#chart").bounding_box()
    assert lane
    for row in range(30):  # lanes are 22 pixels high
        view.mouse.click(lane["x"] + lane["width"] / 2, lane["y"] + 33 + 22 * row)
        if "throttled" in (text := view.locator("#details").inner_text()):
            break
    assert "thread load (25735)" in text
    assert "before the client sent packet #480" in text
