"""A host with stand-ins for enroot and for the tool that reads a registry, and an image that the registry serves."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.builders import image_lock_text
from tests.programs import shell_program

STAND_IN = Path(__file__).with_name("fake_enroot.py")


def digest_of(text: str) -> str:
    """SHA-256 as images have it."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def manifest_text(*layers: str) -> str:
    """A manifest of an image with these layers."""
    return json.dumps(
        {"config": {"digest": digest_of("config")}, "layers": [{"digest": digest_of(layer)} for layer in layers]}
    )


IMAGE = manifest_text("one", "two")


def lock_text(served: str = IMAGE) -> str:
    """A lock of one image that serves torch on the CPU: what has the digest of ``served``."""
    return image_lock_text(digest_of(served))


@dataclass(frozen=True)
class EnrootHost:
    """``folder`` gets a folder ``bin``; ``python`` runs in place of the image's own."""

    folder: Path
    python: Path = Path(sys.executable)

    @property
    def log(self) -> list[str]:
        """A line for each image file that was made, each probe and each start."""
        path = self.folder / "log"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def install(self, served: str = IMAGE, to_enroot: str = IMAGE, refused: str = "") -> str:
        """Write the programs; gives the host's PATH. ``refused`` are options that this host's enroot refuses."""
        for name, text in (("served", served), ("to_enroot", to_enroot)):
            (self.folder / name).write_text(text, encoding="utf-8")
        self.program("skopeo", f'exec cat "{self.folder}/served"')
        words = f'"{self.python}" "{self.folder}/log" "{self.folder}/to_enroot" "{refused}"'
        self.program("enroot", f'exec "{sys.executable}" -IS "{STAND_IN}" {words} "$@"')
        for name in ("mksquashfs", "unsquashfs", "squashfuse"):
            self.program(name, "exit 0")
        return f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def program(self, name: str, script: str) -> None:
        """Write a program of the shell."""
        shell_program(self.folder / "bin" / name, script)
