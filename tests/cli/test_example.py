"""The runs that come with pybench, of two H200s: every command that reads a run works on them."""

from __future__ import annotations

import errno
import json
import os
import tarfile
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from pybench.files.run.folder import RunFolder
from pybench.files.shipped import shipped_suites
from pybench.power.measured_window import joined_energy
from pybench.power.trace_file import read_trace
from pybench.run.hosts.worker import joined_parts

CHECK = "20261128T143259Z-quick_check"
SLOW = "20261128T143804Z-tp_scaling"
_MOST_BYTES = 400_000


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpacked once."""
    folder = tmp_path_factory.mktemp("unpacked") / "example"
    done = CliRunner().invoke(main, ("example", str(folder)))
    assert done.exit_code == 0, done.output
    return folder


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (f"report {CHECK}", 0, "quick_check on h200: pass"),
        (f"report {SLOW}", 0, "fail decode TP 2 output_tokens_per_s"),
        (f"explain {SLOW} --node node_check.json", 0, "Measured and predicted"),
        (f"expect --from {CHECK}", 0, "[[row]]"),
        ("judge tp_scaling.json --node node_check.json", 1, "verdict: "),
        (f"compare {SLOW} tp_scaling.json", 6, "$NCCL_P2P_DISABLE: none -> 1"),
        (f"gate {SLOW} --history . --no-rerun", 6, "--across '$NCCL_P2P_DISABLE'"),
        ("history .", 0, "tp_scaling"),
        (f"verify {CHECK}", 0, "HOLDS"),
        (f"bundle {CHECK} -o check.zip", 0, "check it with: pybench verify"),
        (f"fleet check node1={CHECK}", 4, "not compared"),
    ],
)
def test_a_command_works_on_the_example(
    example: Path, monkeypatch: pytest.MonkeyPatch, command: str, code: int, words: str
) -> None:
    """With the exit code that its figures have."""
    monkeypatch.chdir(example)
    done = CliRunner().invoke(main, command.split())
    assert (done.exit_code, words in done.output) == (code, True), done.output


def test_decode_rounds_out_of_step_have_narrow_bounds(example: Path) -> None:
    """Rounds of 10.9 ms, 92 Hz: samples of half a second look as if they were in step with the sensor."""
    folder = RunFolder.open(example / SLOW)
    points = {point.id: point for point in folder.read_manifest().plan.points}
    record = next(each for each in folder.journal.records() if "tensor_parallel=2" in each.point_id)
    assert record.trace is not None
    hosts = joined_parts(folder.path, record.hosts, read_trace(folder.path, record.trace))
    energy = joined_energy(points[record.point_id], [rank.steps for rank in record.ranks], hosts)
    for gpu in energy.gpus:
        assert gpu.flags == ()
        assert gpu.energy_j is not None
        assert gpu.energy_high_j is not None
        assert gpu.energy_high_j < 1.015 * gpu.energy_j


@pytest.mark.parametrize(
    "command",
    [
        "plan quick_check --format json",
        "doctor --format json",
        f"explain {SLOW} --node node_check.json --format json",
        "history . --suite quick_check --format json",
        f"compare {SLOW} tp_scaling.json -o json=out.json",
        f"gate {SLOW} --history . --no-rerun -o json=out.json",
        f"fleet check node1={CHECK} --json out.json",
    ],
)
def test_what_a_command_writes_as_json_has_a_schema(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """``pybench schema`` of the command's name; each field is in it."""
    monkeypatch.chdir(example)
    written = tmp_path / "out.json"
    done = CliRunner().invoke(main, command.replace("out.json", str(written)).split())
    schema = json.loads(CliRunner().invoke(main, ["schema", command.split(maxsplit=1)[0]]).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    values = json.loads(written.read_text(encoding="utf-8") if written.exists() else done.stdout)
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(values)) == []
    assert schema.get("properties", values).keys() == values.keys()


def test_the_example_is_small_and_is_not_written_over() -> None:
    """It is part of the wheel, and a folder that is there stays."""
    assert (shipped_suites() / "example.tar.xz").stat().st_size <= _MOST_BYTES
    done = CliRunner().invoke(main, ("example", str(Path(__file__).parent)))
    assert done.exit_code == 2
    assert "is there already" in done.output


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its place, and what is to be removed before the command runs again."""

    def full(*_given: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tarfile.TarFile, "extractall", full)
    done = CliRunner().invoke(main, ("example", str(tmp_path / "x")))
    assert done.exit_code == 3
    assert done.output.startswith(f"pybench: {tmp_path / 'x'}: No space left on device (")
    assert done.output.endswith(f"free space there, then remove {tmp_path / 'x'} and run the command again\n")
