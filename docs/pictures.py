"""Draw the pictures of the pages anew, by Debian's Chromium, from runs that come with pybench.

::

    python docs/pictures.py [FOLDER]
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from pybench.cli.main import main

FOLDER = Path(__file__).parent / "images"
MOST_BYTES = 150_000
"""Most bytes of all pictures together."""
_COLORS = 24
_CHECK, _SLOW = "20261128T143259Z-quick_check", "20261128T143804Z-tp_scaling"
PAGES: Mapping[str, tuple[str, int, int, bool]] = {
    "report_light": (_CHECK, 900, 900, False),
    "report_dark": (_CHECK, 900, 600, True),
    "report_phone": (_CHECK, 390, 760, False),
    "report_fail": (_SLOW, 900, 700, False),
}
"""Pictures: the run of ``pybench example``, width and height of the window in pixels, and whether it is dark."""


def draw(folder: Path, chromium: Browser) -> None:
    """Write every picture into ``folder``."""
    with tempfile.TemporaryDirectory() as scratch:
        runs = Path(scratch, "example")
        main(("example", str(runs)), standalone_mode=False)
        pages = {run: Path(scratch, f"{run}.html") for run, *_ in PAGES.values()}
        for run, page in pages.items():
            main(("report", str(runs / run), "--format", "html", "-o", str(page)), standalone_mode=False)
        for name, (run, width, height, is_dark) in PAGES.items():
            tab = chromium.new_page(
                viewport={"width": width, "height": height}, color_scheme="dark" if is_dark else "light"
            )
            tab.goto(pages[run].as_uri())
            picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB").quantize(_COLORS)
            picture.save(folder / f"{name}.png", optimize=True)
            tab.close()


if __name__ == "__main__":
    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER, found)
