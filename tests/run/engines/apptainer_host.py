"""A stand-in for apptainer in a folder of programs."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.programs import shell_program

STAND_IN = Path(__file__).with_name("fake_apptainer.py")


def install_apptainer(folder: Path, python: Path, log: Path, refused: str = "") -> None:
    """Write the program, which refuses the option ``refused``; ``python`` runs in place of the image's own."""
    shell_program(folder / "apptainer", f'exec "{sys.executable}" "{STAND_IN}" "{python}" "{log}" "{refused}" "$@"')
