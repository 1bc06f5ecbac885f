"""The HTML page in a real browser: Debian's Chromium, driven by Playwright.

Skipped where Chromium is absent, unless ``PYBENCH_REQUIRE_BROWSER`` is set.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright
from pypdf import PdfReader

from pybench.files.shipped import shipped_suites
from pybench.model.results import Results
from pybench.report.page.render import render
from pybench.report.run.view import RunView
from tests.docs_script import script
from tests.documents import ROOT
from tests.report.page_run import SECOND, power_trace, traced_run
from tests.report.pages import command_page, history_page

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("PYBENCH_REQUIRE_BROWSER"),
    reason="needs Chromium: apt-get install chromium",
)
MEASURED = shipped_suites() / "measured"
Open = Callable[..., Page]
LIMIT_MS = 120_000
MOST_RUN_PER_SAMPLE = 1 / 3


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=LIMIT_MS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a run's page, or another, from its file; at the end nothing was loaded, logged or raised."""
    troubles: list[str] = []
    contexts = []

    def opened(view: RunView | str, **options: object) -> Page:
        file = tmp_path / "report.html"
        file.write_text(view if isinstance(view, str) else render(view), encoding="utf-8")
        context = browser.new_context(**options)  # type: ignore[arg-type]
        context.set_default_timeout(LIMIT_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: troubles.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: troubles.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri())
        page.wait_for_selector("body[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture
def traced(results: Results, tmp_path: Path) -> RunView:
    """Two attempts with power traces of four GPUs."""
    return traced_run(tmp_path, results)


@pytest.mark.parametrize("fixture", ["results", "empty", "all_skipped", "hostile"])
def test_opens_without_a_request_or_an_error(open_page: Open, fixture: str, request: pytest.FixtureRequest) -> None:
    """From its file, whatever the run shows."""
    results = request.getfixturevalue(fixture)
    page = open_page(RunView(results=results))
    assert page.locator("#point-table tbody tr").count() == len(results.points)


def test_hostile_text_makes_no_element(open_page: Open, hostile: Results) -> None:
    """Markup in names, reasons and packages is shown, not obeyed."""
    page = open_page(RunView(results=hostile))
    assert page.locator("script").count() == 1
    assert page.locator("a, b, img, iframe").count() == 0
    assert '<script>&amp; ]]> "q"' in page.inner_text("h1")


def test_a_head_sorts_and_sorts_back(open_page: Open) -> None:
    """Columns are sorted by number, not by text; the head shows the direction."""
    page = open_page(RunView.of_file(MEASURED / "tp_scaling-h200x4-20261121.json"))
    head = page.locator("#point-table thead th", has_text="throughput")
    shown = []
    for _ in range(2):
        head.locator("button").click()
        names = page.locator("#point-table tbody th").all_inner_texts()
        shown.append((head.get_attribute("aria-sort"), names))
    order = ["decode TP 1", "decode TP 2", "decode TP 4"]
    assert shown == [("ascending", [*order, "decode TP 8"]), ("descending", [*order[::-1], "decode TP 8"])]


def test_the_filter_and_the_verdict_hide_rows(open_page: Open) -> None:
    """The number of shown rows is announced."""
    page = open_page(RunView.of_file(MEASURED / "node_check-h200x4-20261121.json"))
    page.fill("#filter", "ALL_REDUCE")
    assert page.inner_text("#shown") == "6 of 22 points"
    assert page.locator("#point-table tbody tr:visible").count() == 6
    page.fill("#filter", "")
    page.select_option("#verdict", "inconclusive")
    assert page.locator("#point-table tbody tr:visible").all_inner_texts()[0].startswith("matmul_narrow")


def _view(page: Page) -> tuple[float, float, str]:
    text = page.inner_text("#power-view")
    matched = re.match(r"([\d.]+) to ([\d.]+) s: (.*)", text)
    assert matched, text
    return float(matched[1]), float(matched[2]), matched[3]


def test_power_zooms_by_key_button_and_drag(open_page: Open, traced: RunView) -> None:
    """The whole attempt lasts 14 s; its peaks are 700.000 W and a mW more for each GPU."""
    page = open_page(traced)
    start_s, end_s, peaks = _view(page)
    assert start_s == 0.0
    assert 13.9 < end_s < 14.1
    assert re.findall(r"to (\d+\.\d) W", peaks) == ["700.0"] * 4
    page.focus("#plot")
    page.keyboard.press("+")
    by_key = _view(page)
    assert by_key[1] - by_key[0] == pytest.approx((end_s - start_s) / 2, abs=0.01)
    page.click("[data-zoom=all]")
    assert _view(page)[:2] == (start_s, end_s)
    box = page.locator("#plot .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 100, steps=4)
    page.mouse.up()
    by_drag = _view(page)
    assert by_drag[0] == pytest.approx(end_s * 0.5, abs=0.1)
    assert by_drag[1] == pytest.approx(end_s * 0.75, abs=0.1)
    assert "700.0" not in by_drag[2]


def test_every_attempt_can_be_chosen(open_page: Open, traced: RunView) -> None:
    """And the legend names what is drawn."""
    page = open_page(traced)
    assert page.locator("#attempt option").all_inner_texts() == ["decode TP 1, attempt 1", "decode TP 1, attempt 2"]
    page.select_option("#attempt", "1")
    legend = page.inner_text("#power-legend")
    for name in ("GPU 0", "GPU 3", "prefill", "decode", "clock held by power limit", "energy counter"):
        assert name in legend


def test_a_long_trace_is_drawn_coarse_and_then_whole(open_page: Open, results: Results, tmp_path: Path) -> None:
    """150,000 samples: the peak is in the first view; zooming reads every sample."""
    page = open_page(traced_run(tmp_path, results, num_samples=150_000, num_gpus=1, attempts=1))
    assert "700.0 W" in _view(page)[2]
    page.click("[data-zoom=in]")
    page.wait_for_selector("body[data-complete]")
    page.click("[data-zoom=all]")
    assert "700.0 W" in _view(page)[2]


_ZOOM = """how => new Promise((done) => {
  document.querySelector(`[data-zoom=${how}]`).click();
  requestAnimationFrame(() => requestAnimationFrame(done));
})"""


def test_a_zoom_of_a_million_samples_reads_few_of_them(browser: Browser, tmp_path: Path) -> None:
    """Each pixel's exact extremes come from blocks of samples. Counted is how often blocks of code run."""
    file, trace = tmp_path / "report.html", power_trace(1, 1_000_000)
    file.write_text(command_page(trace, 2 * SECOND, trace.end_ns - SECOND), encoding="utf-8")
    with browser.new_page(viewport={"width": 1300, "height": 900}) as page:
        counts = page.context.new_cdp_session(page)
        counts.send("Profiler.enable")
        counts.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": True})
        page.goto(file.as_uri(), timeout=LIMIT_MS)
        page.wait_for_selector("body[data-ready]", timeout=LIMIT_MS)
        page.evaluate(_ZOOM, "in")
        page.wait_for_selector("body[data-complete]", timeout=LIMIT_MS)
        for how in ("all", "in", "right", "left", "in", "in", "out"):
            counts.send("Profiler.takePreciseCoverage")
            page.evaluate(_ZOOM, how)
            scripts = counts.send("Profiler.takePreciseCoverage")["result"]
            functions = (function for script in scripts for function in script["functions"])
            num_run = sum(block["count"] for function in functions for block in function["ranges"])
            assert 50_000 < num_run < MOST_RUN_PER_SAMPLE * 1_000_000, how


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(open_page: Open, traced: RunView, scheme: str) -> None:
    """Contrast, names, roles, tables. The policy is lifted for the checker's own script alone."""
    page = open_page(traced, bypass_csp=True, color_scheme=scheme)
    found = Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in {"serious", "critical"}] == []


def test_dark_and_light_differ_and_a_phone_does_not_scroll_sideways(open_page: Open, traced: RunView) -> None:
    """Colours follow the reader's choice; 390 pixels are enough."""
    phone = open_page(traced, viewport={"width": 390, "height": 800}, color_scheme="light")
    light = phone.evaluate("getComputedStyle(document.body).backgroundColor")
    phone.emulate_media(color_scheme="dark")
    assert phone.evaluate("getComputedStyle(document.body).backgroundColor") != light
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_printed_page_has_every_table(open_page: Open, traced: RunView) -> None:
    """Also those that the screen folds away, and the caption of each."""
    page = open_page(traced)
    captions = page.locator("caption").all_text_contents()
    printed = PdfReader(io.BytesIO(page.pdf(format="A4")))
    text = " ".join(" ".join(sheet.extract_text() for sheet in printed.pages).split())
    assert len(captions) > 10
    assert [caption for caption in captions if " ".join(caption.split()) not in text] == []
    assert len(printed.pages) < 15


@pytest.fixture(params=["history", "command"])
def other_page(request: pytest.FixtureRequest) -> str:
    """A page that is not of one run alone."""
    pages: dict[str, Callable[[], str]] = {
        "history": history_page,
        "command": lambda: command_page(power_trace(4, 600), 2 * SECOND, 11 * SECOND),
    }
    return pages[request.param]()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_other_pages(open_page: Open, other_page: str, scheme: str) -> None:
    """And none is wider than a phone."""
    page = open_page(other_page, bypass_csp=True, color_scheme=scheme, viewport={"width": 390, "height": 800})
    found = Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in {"serious", "critical"}] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_power_of_a_command_is_drawn(open_page: Open) -> None:
    """With the peaks that the trace has, and the command's own span."""
    page = open_page(command_page(power_trace(4, 600), 2 * SECOND, 11 * SECOND))
    assert re.findall(r"to (\d+\.\d) W", _view(page)[2]) == ["700.0"] * 4
    assert "command" in page.inner_text("#power-legend")
    assert "14406 J" in page.inner_text("h1")


def test_the_power_of_a_command_of_days_is_drawn(open_page: Open) -> None:
    """The sampler keeps the beginning and the end of 70 hours, farther apart than 32 bits of its usual times."""
    trace = power_trace(1, 600)
    hours_ns = 70 * 3600 * SECOND
    realtime_ns = np.where(np.arange(600) < 300, 0, hours_ns) + np.asarray(trace.gpus[0].series.realtime_ns)
    series = replace(trace.gpus[0].series, realtime_ns=realtime_ns)
    trace = replace(trace, end_ns=trace.end_ns + hours_ns, gpus=(replace(trace.gpus[0], series=series),))
    page = open_page(command_page(trace, 2 * SECOND, 11 * SECOND + hours_ns))
    start_s, end_s, peaks = _view(page)
    assert start_s == 0.0
    assert end_s == pytest.approx(trace.end_ns / SECOND, abs=0.01)
    assert re.findall(r"to (\d+\.\d) W", peaks) == ["700.0"]


def test_the_pictures_of_the_documents_are_drawn_anew(tmp_path: Path) -> None:
    """``docs/pictures.py`` makes every picture that is kept, and they are small."""
    pictures = script("pictures")
    subprocess.run([sys.executable, "docs/pictures.py", str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    for folder in (tmp_path, pictures.FOLDER):
        assert {path.name for path in folder.iterdir()} == {f"{name}.png" for name in pictures.PAGES}
        assert sum(path.stat().st_size for path in folder.iterdir()) <= pictures.MOST_BYTES
