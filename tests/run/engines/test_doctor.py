"""The doctor's lines on engines, toolkit, CDI, drivers and images, each state once."""

from __future__ import annotations

import os
import pwd
import resource
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pybench.model.container import EngineFacts
from pybench.model.errors import MachineError
from pybench.model.machine import DoctorFinding, Machine
from pybench.run.engines import doctor
from pybench.run.engines.doctor import examine_containers
from pybench.run.engines.oci import engine as oci_engine
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("run.engines.doctor")

DOCKER = EngineFacts(name="docker", version="28.0", runtime="runc", data_root="/")
GPU_MACHINE = cast("Machine", SimpleNamespace(gpus=("one",), driver="580.65.06"))
CPU_MACHINE = cast("Machine", SimpleNamespace(gpus=(), driver=None))


@pytest.fixture(autouse=True)
def _healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where all is well; each test spoils one thing."""
    engine(monkeypatch, DOCKER)
    spoil(monkeypatch, doctor, toolkit_version=lambda: (1, 17, 8), has_cdi=lambda: True)
    spoil(monkeypatch, doctor, images_here=lambda _engine, images: [image.name for image in images])
    spoil(monkeypatch, oci_engine, _MIN_FREE_BYTES=0)


def engine(monkeypatch: pytest.MonkeyPatch, facts: EngineFacts) -> None:
    spoil(monkeypatch, doctor, find_container_engines=lambda: ((oci_engine.DOCKER, facts),))


def spoil(monkeypatch: pytest.MonkeyPatch, place: object, **parts: Any) -> None:
    for name, part in parts.items():
        monkeypatch.setattr(place, name, part)


def found(name: str, machine: Machine = GPU_MACHINE) -> DoctorFinding:
    (only,) = (finding for finding in examine_containers(machine) if finding.name == name)
    return only


def test_a_healthy_machine() -> None:
    """Only the image whose driver this one isn't is a warning."""
    states = {finding.name: finding.state for finding in examine_containers(GPU_MACHINE)}
    assert states.pop("image tensorrt-llm-1.2.1") == "warning"
    assert set(states) == {"engine docker", "docker storage", "NVIDIA toolkit", "CDI", "images"}
    assert set(states.values()) == {"ok"}


def test_a_machine_without_gpus_needs_no_toolkit() -> None:
    """Nor any driver."""
    names = {finding.name for finding in examine_containers(CPU_MACHINE)}
    assert names == {"engine docker", "docker storage", "images"}


@pytest.mark.parametrize(
    ("version", "state"), [(None, "warning"), ((1, 17, 7), "warning"), ((1, 17, 8), "ok"), ((1, 18), "ok")]
)
def test_toolkit(monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...] | None, state: str) -> None:
    """1.17.8 closes CVE-2025-23266."""
    spoil(monkeypatch, doctor, toolkit_version=lambda: version)
    assert found("NVIDIA toolkit").state == state


def test_no_cdi(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that writes it."""
    spoil(monkeypatch, doctor, has_cdi=lambda: False)
    assert "nvidia-ctk cdi generate" in found("CDI").remedy


def test_an_engine_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning only where it is installed."""
    down = replace(DOCKER, version=None, reason="the docker daemon doesn't answer")
    engine(monkeypatch, down)
    assert found("engine docker").state == "warning"
    engine(monkeypatch, replace(down, installed=False))
    assert (found("engine docker").state, found("engine docker").found) == ("ok", "not installed")


def test_rootless_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing limits, pinning and mapping, each with its remedy, are one finding."""
    engine(monkeypatch, replace(DOCKER, rootless=True))
    spoil(monkeypatch, oci_engine, _delegated_controllers=list)
    spoil(monkeypatch, oci_engine, _has_subordinate_ids=lambda: False)
    spoil(monkeypatch, resource, getrlimit=lambda _limit: (8388608, 8388608))
    limited = found("docker rootless")
    assert limited.state == "warning"
    assert limited.found == SENTENCES["rootless_limits"]
    assert [remedy.split()[0] for remedy in limited.remedy.split("; ")] == ["delegate", "raise", "usermod"]
    spoil(monkeypatch, oci_engine, _delegated_controllers=lambda: ["cpu", "pids"])
    spoil(monkeypatch, oci_engine, _has_subordinate_ids=lambda: True)
    spoil(monkeypatch, resource, getrlimit=lambda _limit: (-1, -1))
    assert "docker rootless" not in {finding.name for finding in examine_containers(GPU_MACHINE)}
    assert (found("engine docker").state, found("engine docker").found) == ("ok", "28.0, runc, rootless")


def test_subordinate_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name or by number; another user's are not ours."""
    user = pwd.getpwuid(os.getuid())
    for text, has in (("", False), (f"x{user.pw_name}:1:9\n", False), (f"a:1:9\n{user.pw_uid}:1:9\n", True)):
        monkeypatch.setattr(Path, "read_text", lambda _path, text=text, **_options: text)
        assert oci_engine._has_subordinate_ids() is has


def test_little_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the engine keeps images, not where runs are kept."""
    spoil(monkeypatch, oci_engine, _MIN_FREE_BYTES=2**62)
    finding = found("docker storage")
    assert (finding.state, finding.remedy) == ("warning", SENTENCES["little_space"])


def test_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """None here is a warning; an engine that can't say is another."""
    spoil(monkeypatch, doctor, images_here=lambda _engine, _images: [])
    assert "pybench images pull" in found("images").remedy

    def broken(_engine: object, _images: object) -> list[str]:
        raise MachineError("docker can't say")

    spoil(monkeypatch, doctor, images_here=broken)
    assert found("images").found == "docker can't say"
