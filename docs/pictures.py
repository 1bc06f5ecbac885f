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
from playwright.sync_api import sync_playwright

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


def draw(folder: Path) -> None:
    """Write every picture into ``folder``."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as started:
        runs = Path(scratch, "example")
        main(("example", str(runs)), standalone_mode=False)
        chromium = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (run, width, height, is_dark) in PAGES.items():
            page = Path(scratch, f"{run}.html")
            main(("report", str(runs / run), "--format", "html", "-o", str(page)), standalone_mode=False)
            tab = chromium.new_page(
                viewport={"width": width, "height": height}, color_scheme="dark" if is_dark else "light"
            )
            tab.goto(page.as_uri())
            picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB").quantize(_COLORS)
            picture.save(folder / f"{name}.png", optimize=True)
        chromium.close()


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
