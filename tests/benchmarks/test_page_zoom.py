"""A zoom of the power chart in the browser: little more for a million samples than for twenty thousand."""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import median

import pytest
from playwright.sync_api import CDPSession, sync_playwright

from tests.report.page_run import SECOND, power_trace
from tests.report.pages import command_page

CHROMIUM = shutil.which("chromium")
MOST_TIMES_AS_LONG = 3.0
_CLICK = """how => new Promise((done) => {
  document.querySelector(`[data-zoom=${how}]`).click();
  requestAnimationFrame(() => requestAnimationFrame(done));
})"""


def _cpu_s(session: CDPSession) -> float:
    """CPU time of the page's main thread: other programs do not count."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


def _zoom_s(file: Path) -> tuple[float, float]:
    """CPU seconds of the median zoom, and of the first view."""
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(file.as_uri(), wait_until="commit")
        page.wait_for_selector("body[data-ready]")
        first_s = _cpu_s(session)
        page.evaluate(_CLICK, "in")
        if 'id="power-0"' in file.read_text(encoding="utf-8"):
            page.wait_for_selector("body[data-complete]", timeout=120_000)
        taken = []
        for how in ("all", "in", "right", "left", "in", "in", "out") * 4:
            before_s = _cpu_s(session)
            page.evaluate(_CLICK, how)
            taken.append(_cpu_s(session) - before_s)
        browser.close()
    return median(taken), first_s


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_a_zoom_of_a_million_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each pixel's exact extremes come from blocks of samples, not from all of them."""
    found = {}
    for num in (20_000, 1_000_000):
        file = tmp_path / f"{num}.html"
        trace = power_trace(1, num)
        file.write_text(command_page(trace, 2 * SECOND, trace.end_ns - SECOND), encoding="utf-8")
        found[num] = _zoom_s(file)
    with capsys.disabled():
        for num, (zoom_s, first_s) in found.items():
            print(f"\n{num:>9,} samples: zoom {1e3 * zoom_s:.1f} ms, first view {1e3 * first_s:.0f} ms of CPU time")
    assert found[1_000_000][0] < MOST_TIMES_AS_LONG * found[20_000][0]
