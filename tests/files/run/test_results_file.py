"""A kept results.json that somebody edited: what no measurement can be is refused, with its place."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pybench.files.run.journal import decode_line, encode_line
from pybench.files.run.results_file import read_results
from pybench.model.errors import RunFolderError
from tests.builders import POINT_RESULT, RECORD, RESULTS, estimate

POINT = replace(POINT_RESULT, metrics={"step_s": estimate(1.0, "s", 0.9, 1.1)})


def nested(levels: int) -> object:
    """A number in so many lists."""
    return [nested(levels - 1)] if levels else 1


def read(folder: Path, **metric: Any) -> None:
    """Write results whose metric has other values, and read them."""
    values = json.loads(json.dumps(asdict(replace(RESULTS, points=(POINT,)))))
    values["points"][0]["metrics"]["step_s"] |= metric
    file = folder / "results.json"
    # 1e999 is valid JSON, and no finite number.
    file.write_text(json.dumps(values).replace('"huge"', "1e999"))
    read_results(file)


def test_what_was_measured_is_read(tmp_path: Path) -> None:
    """Else nothing below would show anything."""
    read(tmp_path)
    read(tmp_path, value=1e60, low=-1e60, high=1e60, medians=[-1e60])


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ({"num_gpus": 0}, "num_gpus: 0 is no count"),
        ({"failed_attempts": -1}, "failed_attempts: -1 of 3 attempts"),
        ({"failed_attempts": 4}, "failed_attempts: 4 of 3 attempts"),
        ({"settings": {"model": nested(32)}}, "settings: more than 32 levels of lists and objects"),
    ],
)
def test_what_no_run_writes_is_refused(tmp_path: Path, edits: dict[str, Any], words: str) -> None:
    """Impossible counts and deep nesting are refused, with the field's place."""
    values = json.loads(json.dumps(asdict(replace(RESULTS, points=(POINT,)))))
    values["points"][0] |= edits
    file = tmp_path / "results.json"
    file.write_text(json.dumps(values))
    with pytest.raises(RunFolderError) as caught:
        read_results(file)
    assert str(caught.value).startswith(f"{file}: points.0.{words}")
    assert str(caught.value).endswith("edited or damaged; rebuild it with: pybench report RUN --format json")


@pytest.mark.parametrize("edits", [{"verdict": "fine"}, {"points": 7}, {"counts": {"passed": "x"}}])
def test_a_refusal_of_a_field_has_the_next_step(tmp_path: Path, edits: dict[str, Any]) -> None:
    """The run's folder has what the file lost."""
    file = tmp_path / "results.json"
    file.write_text(json.dumps({**json.loads(json.dumps(asdict(RESULTS))), **edits}))
    with pytest.raises(RunFolderError, match=r"; rebuild it with: pybench report RUN --format json$"):
        read_results(file)


def test_a_point_that_stands_there_twice(tmp_path: Path) -> None:
    """Reports would show its rows twice."""
    values = json.loads(json.dumps(asdict(replace(RESULTS, points=(POINT, POINT)))))
    file = tmp_path / "results.json"
    file.write_text(json.dumps(values))
    with pytest.raises(RunFolderError, match=r"results\.json: points: .* stands there 2 times; the file was edited"):
        read_results(file)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "inf", "nan", "1e999", "huge"])
@pytest.mark.parametrize("name", ["value", "low"])
def test_no_finite_number(tmp_path: Path, name: str, value: object) -> None:
    """Neither as JSON has it nor as text that Python reads as one."""
    with pytest.raises(RunFolderError, match=rf"points\.0\.metrics\.step_s\.{name}: .*(finite|no) number"):
        read(tmp_path, **{name: value})


@pytest.mark.parametrize("metric", [{"value": 1e61}, {"high": 1e308}, {"low": -1e308}, {"medians": [1.0, 1e300]}])
def test_larger_than_any_measurement(tmp_path: Path, metric: dict[str, Any]) -> None:
    """A sum of them would be infinite."""
    with pytest.raises(RunFolderError, match=r"step_s\..* is larger than any measurement"):
        read(tmp_path, **metric)


@pytest.mark.parametrize("value", [b"Infinity", b"NaN", b"1e999", b'"inf"'])
def test_a_journal_with_a_checksum_made_again(value: bytes) -> None:
    """Whoever makes up a journal can make its checksums; its values are held to the same."""
    line = encode_line(replace(RECORD, duration_s=1234.5), 1)
    body = line[line.index(b'"record": ') + len(b'"record": ') : -2].replace(b"1234.5", value)
    checksum = hashlib.sha256(b"1:" + body).hexdigest()[:16].encode()
    forged = b'{"sequence": 1, "checksum": "%s", "record": %s}' % (checksum, body)
    with pytest.raises(RunFolderError, match=r":1: duration_s: .*(finite|no) number"):
        decode_line(Path("journal.jsonl"), 1, forged)
