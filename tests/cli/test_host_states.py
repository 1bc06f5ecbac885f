"""Hosts with missing or broken parts under ``doctor``, ``plan``, ``run`` and ``power record``.

The table in ``docs/measuring.md`` is what these tests see. After a wanted change write it anew with
``PYBENCH_UPDATE_GOLDEN=1 pytest tests/cli/test_host_states.py`` and read the difference.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from pybench.cli.main import main
from pybench.machine import doctor, environment, gpus, nvml
from pybench.model.record import Xid
from pybench.run.engines import doctor as engines_doctor
from pybench.run.loop import Run
from tests.builders import NO_DRIVER
from tests.cli.conftest import write_drill

DOCUMENT = Path(__file__).parents[2] / "docs" / "measuring.md"
_TABLE = re.compile(r"(?<=<!-- states of hosts -->\n\n).*?(?=\n<!-- end of states -->)", re.DOTALL)
_HEADS = ("state of the host", "`doctor`", "what it reports", "`plan`", "`run`", "`power record`")
_POWER = [f"nvmlDeviceGet{name}:3" for name in ("TotalEnergyConsumption", "Samples", "PowerUsage", "FieldValues")]
_MIG = "MIG-00000000-fake-5000-8000-000000000000"
_XIDS = (Xid(sequence=1, pci_bus_id="0000:19:00", number=79),)


@dataclass(frozen=True, kw_only=True)
class State:
    """Settings of the fake driver, variables of the shell, and what else is another on the host."""

    name: str
    driver: dict[str, object] = field(default_factory=dict)
    shell: dict[str, str] = field(default_factory=dict)
    patches: tuple[tuple[Any, str, Any], ...] = ()


def _no_library() -> None:
    raise nvml.NoDriverError("no NVIDIA driver: libnvidia-ml.so.1 not found")


_NO_LIBRARY = (nvml, "open_library", _no_library)
STATES = (
    State(name="two GPUs, healthy"),
    State(name="no GPU and no driver", shell=dict([NO_DRIVER])),
    State(
        name="a GPU, the driver's library is missing (a container without `--gpus`)",
        shell={nvml.LIBRARY_VARIABLE: ""},
        patches=(_NO_LIBRARY, (gpus, "hardware_sign", lambda: "PCI device 0000:19:00.0 is an NVIDIA GPU")),
    ),
    State(name="driver updated under its running module", driver={"fail": "nvmlInit:18"}),
    State(
        name="... and `CUDA_VISIBLE_DEVICES` is empty, which asks for CPU cores",
        driver={"fail": "nvmlInit:18"},
        shell={"CUDA_VISIBLE_DEVICES": ""},
    ),
    State(name="no permission for `/dev/nvidia*`", driver={"fail": "nvmlInit:4"}),
    State(name="driver installed, not loaded", driver={"fail": "nvmlInit:9"}),
    State(name="unknown error (a container after daemon-reload)", driver={"fail": "nvmlInit:999"}),
    State(
        name="driver does not answer in time",
        driver={"hang": "nvmlDeviceGetCount_v2:1500"},
        patches=((gpus.find_gpus, "__defaults__", (0.1, None)),),
    ),
    State(name="driver lists no GPU", driver={"devices": 0}),
    State(name="`CUDA_VISIBLE_DEVICES` is empty", shell={"CUDA_VISIBLE_DEVICES": ""}),
    State(name="`CUDA_VISIBLE_DEVICES` names no GPU of the host", shell={"CUDA_VISIBLE_DEVICES": "7"}),
    State(name="job of a MIG instance", shell={"CUDA_VISIBLE_DEVICES": _MIG}),
    State(name="MIG is on", driver={"mig": 1}),
    State(name="one of two GPUs lost", driver={"fail": "nvmlDeviceGetUUID:15:1"}),
    State(name="all GPUs lost", driver={"fail": "nvmlDeviceGetUUID:15"}),
    State(name="compute mode Prohibited on both", driver={"compute_mode": 2}),
    State(name="NVSwitch fabric not up", driver={"fabric": 2}),
    State(name="GPU name that is not UTF-8", driver={"name": os.fsdecode(b"NVIDIA \xf8\x80")}),
    State(name="power limit lowered", driver={"limit_w": 300, "default_limit_w": 700}),
    State(name="driver reports no power", driver={"fail": ",".join(_POWER)}),
    State(name="XID 79 in the kernel's log", patches=((doctor, "read_xids", lambda: _XIDS),)),
    State(name="half a core by the control group", patches=((environment, "cpu_quota", lambda: 0.5),)),
)


@pytest.fixture
def host(
    here: Path, fake_nvml: Callable[..., None], fresh_nvml: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[[State], tuple[str, ...]]:
    """The row of a state: a run ends where it would begin to measure."""
    write_drill(here)

    def begins(self: Run, progress: object) -> None:
        del progress
        raise click.exceptions.Exit(0 if self.manifest.device == "cuda" else 100)

    def row(state: State) -> tuple[str, ...]:
        fake_nvml(**{"default_limit_w": 650, **state.driver})
        for name, value in state.shell.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(doctor, "read_xids", lambda: ())
        monkeypatch.setattr(engines_doctor, "examine_containers", lambda _machine: ())
        monkeypatch.setattr(environment, "cpu_quota", lambda: None)
        monkeypatch.setattr(Run, "finish", begins)
        for owner, name, value in state.patches:
            monkeypatch.setattr(owner, name, value)
        examined = CliRunner().invoke(main, ("doctor", "--format", "json"))
        planned = CliRunner().invoke(main, ("plan", "drill.toml"))
        ran = CliRunner().invoke(main, ("run", "drill.toml", "--python", str(here / "python")))
        sampled = CliRunner().invoke(main, ("power", "record", "--", "true"))
        measures = {0: "measures GPUs", 100: "measures CPU cores"}
        return (
            state.name,
            str(examined.exit_code),
            "; ".join(_reports(examined)) or "-",
            str(planned.exit_code),
            measures.get(ran.exit_code, str(ran.exit_code)),
            f"{sampled.exit_code}{', joules unknown' * ('unknown' in sampled.stderr.partition('CPU packages')[0])}",
        )

    return row


def _reports(examined: Result) -> Iterator[str]:
    """The doctor's findings about GPUs, driver, kernel and control group, each with its remedy."""
    seen = set()
    for finding in json.loads(examined.stdout)["findings"]:
        remedy = finding["remedy"].partition("; until then a run ends")[0]
        text = f"{re.sub(r'of [0-9]+ cores?', 'of N cores', finding['found'])} → {remedy}"
        if finding["state"] != "ok" and re.match("GPU|kernel|CPU quota", finding["name"]) and text not in seen:
            seen.add(text)
            yield f"{finding['name']}: {text}"


def documented() -> dict[str, str]:
    """Lines of the table by their state."""
    lines = (_TABLE.search(DOCUMENT.read_text(encoding="utf-8")) or [""])[0].splitlines()[2:]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines}


def document(name: str, line: str) -> None:
    """Put the line of a state into the table."""
    known = {**documented(), name: line}
    table = [
        f"| {' | '.join(_HEADS)} |",
        f"|{' --- |' * len(_HEADS)}",
        *(known[s.name] for s in STATES if s.name in known),
    ]
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(_TABLE.sub(lambda _: "\n".join(table) + "\n", text), encoding="utf-8")


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_a_state_is_as_documented(state: State, host: Callable[[State], tuple[str, ...]]) -> None:
    """None that leaves GPUs unusable becomes a run of CPU cores unless these were asked for."""
    line = f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in host(state))} |"
    if os.environ.get("PYBENCH_UPDATE_GOLDEN"):
        document(state.name, line)
    assert documented().get(state.name) == line


def test_the_table_has_no_other_state() -> None:
    """A state that was dropped goes from the document, too."""
    assert [*documented()] == [state.name for state in STATES]
