"""A run whose files are whole by their checksums, with any one key absent or of another type: refused, or judged."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from pybench.core.keys import run_figures
from pybench.files.run.folder import RunFolder
from pybench.model.errors import RunFolderError
from pybench.nightly import comparison_text as comparison
from pybench.nightly.comparison import compare
from pybench.report.formats import render
from pybench.report.run.view import RunView

Keys = tuple[str | int, ...]
_OTHERS: tuple[Any, ...] = (None, "x", -1, 0, [], {}, 1e308, True, 2**70)
_ABSENT = object()


def keys_of(value: Any, above: Keys = ()) -> Iterator[Keys]:
    """Every key; of items of one shape, as in lists, those of the first."""
    items = [*(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())]
    alike = len({str([*item]) if isinstance(item, dict) else type(item) for _, item in items}) == 1
    for key, item in items[: 1 if alike and isinstance(items[0][1], dict | list) else None]:
        yield (*above, key)
        yield from keys_of(item, (*above, key))


def edited(value: Any, keys: Keys, new: Any) -> Any:
    """A copy with the key set to ``new``, or without it; what the key is not in is shared."""
    found, (key, *rest) = copy.copy(value), keys
    if rest:
        found[key] = edited(value[key], tuple(rest), new)
    elif new is _ABSENT:
        del found[key]
    else:
        found[key] = new
    return found


def manifest_bytes(values: dict[str, Any]) -> bytes:
    """A manifest with the checksum of its content."""
    body = json.dumps({key: value for key, value in values.items() if key != "checksum"}, indent=1).encode()[1:] + b"\n"
    return b'{\n "checksum": "%s",' % hashlib.sha256(body).hexdigest()[:16].encode() + body


def journal_bytes(records: list[Any]) -> bytes:
    """A journal with places and checksums."""
    lines = []
    for place, record in enumerate(records, 1):
        body = json.dumps(record).encode()
        checksum = hashlib.sha256(b"%d:%s" % (place, body)).hexdigest()[:16].encode()
        lines.append(b'{"sequence": %d, "checksum": "%s", "record": %s}\n' % (place, checksum, body))
    return b"".join(lines)


def of_manifest(run: Path) -> Any:
    return json.loads((run / "manifest.json").read_bytes())


def of_journal(run: Path) -> Any:
    return [json.loads(line)["record"] for line in (run / "journal.jsonl").read_bytes().splitlines()]


def of_results(run: Path) -> Any:
    return json.loads((run / "results.json").read_bytes())


def read(run: Path, file: str) -> RunView:
    return RunView.of_file(run / file) if file == "results.json" else RunView.of_folder(RunFolder.open(run))


def read_or_message(run: Path, file: str) -> RunView | str:
    try:
        return read(run, file)
    except RunFolderError as error:
        return str(error)


@pytest.mark.parametrize(
    ("file", "values_of", "encode"),
    [
        ("manifest.json", of_manifest, manifest_bytes),
        ("journal.jsonl", of_journal, journal_bytes),
        ("results.json", of_results, lambda values: json.dumps(values).encode()),
    ],
)
def test_every_key_absent_or_of_another_type(
    finished: Path, file: str, values_of: Callable[[Path], Any], encode: Callable[[Any], bytes]
) -> None:
    """An edit is refused in one line that begins with the file, or the run can be judged, shown and compared."""
    values = values_of(finished)
    whole = read(finished, file)
    good = replace(run_figures(whole.results), run_id="then")
    found = [*keys_of(values)]
    num_refused = 0
    for place, keys in enumerate(found):
        for new in (_ABSENT, _OTHERS[place % len(_OTHERS)]):
            (finished / file).write_bytes(encode(edited(values, keys, new)))
            view = read_or_message(finished, file)
            if isinstance(view, str):
                assert view.startswith(str(finished / file)), keys
                assert "\n" not in view, keys
                num_refused += 1
                continue
            if view == whole:  # a default, or what nothing reads: shown as before
                continue
            render(view, ("json", "terminal", "html")[place % 3])
            own = run_figures(view.results)
            comparison.render(compare(own, [good]), [own, good])
    assert num_refused > len(found) / 3


EDITS: dict[str, tuple[Keys, Any, str]] = {
    "no table": (("tables", "drill"), _ABSENT, "tables: holds no table 'drill', which suite.benchmarks.0"),
    "no plan": (("plan",), _ABSENT, "plan: Field required"),
    "no size": (("plan", "points", 0, "architecture", "hidden_size"), "x", "hidden_size: found 'x', expected a whole"),
    "another config": (("suite", "own_models", "own@1"), {"vocab_size": 3}, "own@1: its config has the digest"),
    "no count": (("suite", "benchmarks", 0, "axes", "tensor_parallel", 1), 0, "tensor_parallel: scaling runs along it"),
    "no metric": (("suite", "benchmarks", 0, "expectations", 0, "metric"), "x", "metric: 'x' is no metric of workload"),
    "no number": (("tables", "drill", "rows", 0, "tolerance"), 1e308, "rows.0.tolerance: 1e+308 is larger than any"),
}
COMMANDS = (
    ("report", "RUN"),
    ("report", "RUN", "--format", "perfetto", "-o", "trace"),
    ("compare", "RUN", "GOOD"),
    ("compare", "GOOD", "RUN"),
    ("gate", "RUN", "--history", "history", "--no-rerun"),
    ("explain", "RUN", "--node", "GOOD"),
    ("explain", "GOOD", "--node", "RUN"),
    ("expect", "--from", "RUN"),
    ("bundle", "RUN", "-o", "run.zip"),
    ("run", "--resume", "RUN"),
    ("run", "--resume", "RUN", "--rendezvous", "127.0.0.1:1", "--nodes", "2"),
    ("fleet", "check", "RUN"),
    ("fleet", "pairs", "a", "b", "--met", "RUN"),
)


@pytest.mark.parametrize("edit", EDITS)
def test_every_command_refuses_it(finished: Path, edit: str) -> None:
    """In one line with file and key, exit code 2. A history skips it with that line; verify lists it."""
    keys, new, message = EDITS[edit]
    good = finished.with_name("good")
    shutil.copytree(finished, good)
    shutil.copytree(finished, Path("history") / finished.name)
    (finished / "manifest.json").write_bytes(manifest_bytes(edited(of_manifest(finished), keys, new)))
    run = CliRunner()
    for command in COMMANDS:
        done = run.invoke(main, [{"RUN": str(finished), "GOOD": str(good)}.get(word, word) for word in command])
        assert (done.exit_code, done.stdout) == (2, ""), (command, done.output)
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert f"{finished}/manifest.json: " in done.stderr, command
        assert message in done.stderr, command
    assert message in " ".join(run.invoke(main, ["verify", str(finished)]).stdout.split())
    assert run.invoke(main, ["history", "runs"]).exit_code == 0


def test_a_message_has_no_more_of_a_long_text_than_its_ends(finished: Path) -> None:
    """Its beginning has file and key, its end what to do next."""
    values = edited(of_manifest(finished), ("suite", "benchmarks", 0, "workload"), "y" * 200_000)
    (finished / "manifest.json").write_bytes(manifest_bytes(values))
    done = CliRunner().invoke(main, ["report", str(finished)])
    assert done.exit_code == 2
    assert len(done.stderr) < 5000
    assert done.stderr.startswith(f"pybench: {finished}/manifest.json: suite.benchmarks.0.workload: 'yyy")
    assert done.stderr.endswith("yyy' is no workload of this pybench; the file was edited or damaged; get it again\n")
