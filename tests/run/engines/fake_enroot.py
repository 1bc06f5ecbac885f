"""enroot as far as pybench uses it: an image file is text, and what should run in it runs here.

``PYTHON LOG MANIFEST REFUSED`` come before enroot's own words: what runs in place of the image's Python, a file that
gets a line for each image file that is made or started, the manifest that the registry serves to enroot, and options
that this host refuses, separated by commas. Options, their forms and their errors are those of enroot's own sources.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

python, log, manifest, refused, command, *words = sys.argv[1:]
WITH_VALUE = {"--env": r"[A-Za-z_][A-Za-z0-9_]*(=.*)?", "--mount": r"\S+(:\S+)*", "--rc": r".+"}
SWITCHES = {"--pid", "--net", "--ipc", "--uts"}
URI = r"docker://[^#/@]+#[a-z0-9/._-]+@sha256:[0-9a-f]{64}"


def note(line: str) -> None:
    """Add a line to the log."""
    with Path(log).open("a", encoding="utf-8") as stream:
        stream.write(f"{line}\n")


def fail(line: str) -> None:
    """End as enroot does."""
    sys.exit(f"[ERROR] {line}")


def make(option: str, file: str, uri: str) -> None:
    """Write an image file, and blobs to the cache. No two files of one image are equal."""
    if option != "--output" or not re.fullmatch(URI, uri):
        fail(f"Invalid image reference: {uri}")
    if Path(file).exists():
        fail(f"File already exists: {file}")
    note(f"import {uri}")
    named = json.loads(Path(manifest).read_text(encoding="utf-8"))
    for blob in (named["config"], *named["layers"]):
        (Path(os.environ["ENROOT_CACHE_PATH"]) / blob["digest"].removeprefix("sha256:")).touch()
    Path(file).write_text(f"{uri} made by {os.getpid()}", encoding="utf-8")


def start() -> None:
    """Run the image's Python with this machine's folders for bound ones."""
    places: dict[str, str] = {}
    variables: dict[str, str] = {}
    while words[0].startswith("-"):
        option = words.pop(0)
        if option in refused.split(","):
            print("enroot-mount: failed to mount: /dev/log at /dev/log: No such file or directory", file=sys.stderr)
            fail("/etc/enroot/hooks.d/10-devices.sh exited with return code 1")
        if option in SWITCHES:
            continue
        value = words.pop(0)
        if not re.fullmatch(WITH_VALUE[option], value):
            fail(f"Invalid argument: {value}")
        if option == "--mount":
            source, target, *_ = value.split(":")
            places[target] = source
        elif option == "--env":
            name, equals, given = value.partition("=")
            variables[name] = given if equals else os.environ.get(name, "")
        elif not Path(value).is_file():
            fail(f"No such file or directory: {value}")
    image, _, *inside = words
    if "PYBENCH_ATTEMPT" in os.environ:
        fail("what serves the image's files would be ended with the worker")
    probes = "-c" in inside
    program = sys.executable if probes else python
    for target, source in places.items():
        inside = [word.replace(target, source) for word in inside]
    note("probe" if probes else f"start {Path(image).name}")
    os.execve(program, [program, *inside], {"PATH": os.environ["PATH"], **variables})


if command == "version":
    print("4.1.2")
elif command == "import":
    make(*words)
elif words == ["--help"]:
    print(" Options:\n       --pid            Run\n       --net            Run\n       --ipc            Run")
else:
    start()
