"""apptainer as far as pybench uses it: an image file is text, and what should run in it runs here.

``PYTHON LOG REFUSED`` come before apptainer's own words: what runs in place of the image's Python, a file that gets a
line for each image file that is made, tried or started, and an option that this machine's apptainer refuses.
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from pathlib import Path

python, log, refused, command, *words = sys.argv[1:]
INSIDE = "APPTAINERENV_"


def note(line: str) -> None:
    """Add a line to the log."""
    with Path(log).open("a", encoding="utf-8") as stream:
        stream.write(f"{line}\n")


def build(file: str, reference: str) -> None:
    """Write an image file. No two of one image are equal."""
    note(f"build {reference}")
    Path(file).write_text(f"{reference} made by {os.getpid()}", encoding="utf-8")


def run_inside(options: list[str]) -> None:
    """Run the image's Python with this machine's folders for bound ones."""
    (image,) = (place for place, word in enumerate(options) if word.endswith(".sif"))
    places: dict[str, str] = {}
    for option, value in pairwise(options[:image]):
        if option == "--mount":
            fields = dict(field.partition("=")[::2] for field in value.split(","))
            places[fields["destination"]] = fields["source"]
    if refused in options[:image]:
        sys.exit(f"FATAL:   container creation failed: {refused} is for root")
    inside = options[image + 2 :]
    for target, source in places.items():
        inside = [word.replace(target, source) for word in inside]
    variables = {name.removeprefix(INSIDE): value for name, value in os.environ.items() if name.startswith(INSIDE)}
    probes = "-c" in inside
    note("probe" if probes else f"exec {Path(options[image]).name}")
    program = sys.executable if probes else python
    os.execve(program, [program, *inside], {"PATH": os.environ["PATH"], **variables})


if command == "--version":
    print("apptainer version 1.3.6")
elif command == "build":
    build(*words[-2:])
else:
    run_inside(words)
