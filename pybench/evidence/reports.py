"""The reports in a run's folder held against those that follow from its journal."""

from __future__ import annotations

import errno
import json
import os
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pybench.evidence.figures import UNCLAIMED, differences, equal, num_values
from pybench.evidence.malformed import MALFORMED, guarded
from pybench.evidence.values import Discrepancy
from pybench.files.run.folder import RunFolder
from pybench.files.safe_folder import read_below
from pybench.model.errors import PybenchError
from pybench.model.manifest import MANIFEST_FILE
from pybench.model.results import RESULTS_FILE
from pybench.report.formats import REPORT_FILES, render
from pybench.report.run.view import RunView

_MAX_REPORT_BYTES = 2**28
# By how much one that is compared in detail may be longer: as JSON, or cut into numbers, it takes many times its bytes.
_MOST_TIMES, _MOST_MORE_BYTES = 4, 2**20
# What gzip and base64 made of columns differs with zlib; the columns do not.
_PACKED = re.compile(r"H4sI[A-Za-z0-9+/]+=*")
# Pages hold figures with all their digits, to sort by and to export.
_NUMBER = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.])")


def check_reports(folder: RunFolder, view: RunView, checked: dict[str, int]) -> Iterator[Discrepancy]:
    """The reports in the folder are those that follow from its journal; without any the run is unfinished."""
    if not has_reports(folder.path):
        text = "not there, nor is any other report: the run was stopped before it wrote them"
        yield Discrepancy(place=RESULTS_FILE, text=text, state="unfinished")
        return
    same_version = view.manifest is not None and view.manifest.pybench_version == version("pybench")
    if not same_version and view.manifest is not None:
        text = f"written by pybench {view.manifest.pybench_version}, whose formulas may differ; verify with that one"
        yield Discrepancy(place=MANIFEST_FILE, text=text, state="not checked")
    for name, file in REPORT_FILES.items():
        if file == RESULTS_FILE or (folder.path / file).exists():
            yield from guarded(file, _check_report(folder, view, (name, file), checked, same_version=same_version))


def _check_report(
    folder: RunFolder, view: RunView, report: tuple[str, str], checked: dict[str, int], *, same_version: bool
) -> Iterator[Discrepancy]:
    """One of them, by the name of its format and its file."""
    name, file = report
    most, due = _MAX_REPORT_BYTES, 0
    try:
        computed = render(view, name)
        if same_version or file == RESULTS_FILE:
            due = len(computed.encode())
            most = _MOST_TIMES * due + _MOST_MORE_BYTES
        text = read_below(folder.path, file, most).decode("utf-8")
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        if due and error.errno == errno.EOVERFLOW:
            why = f"more than {most} bytes, where the report that follows from the journal has {due}: it was edited"
        yield Discrepancy(place=file, text=why)
        return
    except (PybenchError, *MALFORMED) as error:
        yield Discrepancy(place=file, text=f"cannot be held against the journal: {error}")
        return
    if file == RESULTS_FILE:
        yield from _figures(text, computed, checked)
    elif not same_version:
        written = view.manifest.pybench_version if view.manifest else "another version"
        text = f"written by pybench {written}, which words reports in another way than {version('pybench')}"
        yield Discrepancy(place=file, text=text, state="not checked")
    elif not _same(_unpacked(text), _unpacked(computed)):
        yield Discrepancy(place=file, text="not the report that follows from the journal: it was edited")


def has_reports(path: Path) -> bool:
    """Whether the run in ``path`` wrote any report."""
    return any(os.path.lexists(path / file) for file in REPORT_FILES.values())


def _figures(text: str, computed: str, checked: dict[str, int]) -> Iterator[Discrepancy]:
    try:
        claimed = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        yield Discrepancy(place=RESULTS_FILE, text=f"not readable as JSON: {error}")
        return
    following = json.loads(computed)
    checked["figures"] = num_values(following)
    places: dict[tuple[str, str], list[str]] = {}
    for place, difference in differences(claimed, following):
        # A field that all points lack is one fault.
        field = (place.rpartition(".")[2], UNCLAIMED) if difference.startswith(UNCLAIMED) else (place, difference)
        places.setdefault(field, []).append(f"{place}: {difference}")
    for (name, _), texts in places.items():
        text = texts[0] if len(texts) == 1 else f"{name}: nothing is claimed at {len(texts)} places, first {texts[0]}"
        yield Discrepancy(place=RESULTS_FILE, text=text)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no value of JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ on which of two values of one name counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice in one object")
    return found


def _same(text: str, computed: str) -> bool:
    """Whether both texts are equal but for the last digits of their figures, which depend on numpy's build."""
    if text == computed:
        return True
    # Words and numbers in turn.
    parts, following = _NUMBER.split(text), _NUMBER.split(computed)
    return parts[::2] == following[::2] and all(map(_same_number, parts[1::2], following[1::2]))


def _same_number(text: str, computed: str) -> bool:
    return text == computed or ("." in text + computed and equal(float(text), float(computed)))


def _unpacked(text: str) -> str:
    def digest(packed: re.Match[str]) -> str:
        try:
            engine = zlib.decompressobj(wbits=31)
            return sha256(engine.decompress(b64decode(packed[0]), _MAX_REPORT_BYTES)).hexdigest()
        except (ValueError, zlib.error):
            return packed[0]

    return _PACKED.sub(digest, text)
