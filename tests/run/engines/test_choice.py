"""The choice of an engine on a machine without one, or with a stopped one."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pybench.model.container import ContainerRequest, EngineFacts, Mount
from pybench.model.errors import MachineError, UsageError
from pybench.run.engines import choice
from pybench.run.engines.base import Engine, EngineOptions, LaunchRequirements
from pybench.run.engines.choice import choose_launcher
from pybench.run.engines.local import Local
from pybench.run.engines.oci.engine import DOCKER, OciEngine
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("run.engines.choice")

NEEDS = LaunchRequirements(backends=("torch",), device="cuda", request=ContainerRequest())
DOWN = EngineFacts(name="docker", version=None, reason="the docker daemon doesn't answer: connection refused")


@pytest.fixture
def down(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose only engine is down."""
    monkeypatch.setattr(choice, "which", lambda name: name if name == "docker" else None)
    monkeypatch.setattr(OciEngine, "find", lambda _engine: DOWN)
    monkeypatch.setattr(choice, "find_container_engines", lambda: ((DOCKER, DOWN),))


@pytest.mark.usefixtures("down")
def test_auto_runs_here_and_says_why() -> None:
    """No container, and no silence about it."""
    notes: list[str] = []
    assert choose_launcher(EngineOptions(), NEEDS, notes.append) == Local(sys.executable)
    assert notes == [SENTENCES["auto_runs_here_and_says_why"]]


def test_engines_with_one_reason_give_it_once(down: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docker and podman do of a lock without an image."""
    monkeypatch.setattr(choice, "find_container_engines", lambda: ((DOCKER, DOWN), (DOCKER, DOWN)))
    notes: list[str] = []
    choose_launcher(EngineOptions(), NEEDS, notes.append)
    assert notes == [SENTENCES["auto_runs_here_and_says_why"]]


def test_a_device_without_an_image_is_the_only_reason(down: None) -> None:
    """Whatever engines there are. None is looked for."""
    notes: list[str] = []
    assert choose_launcher(EngineOptions(), replace(NEEDS, device="cpu"), notes.append) == Local(sys.executable)
    (note,) = notes
    assert note.startswith("not containerised: ")
    assert "images.toml has no image for backend torch on cpu, " in note
    assert "docker" not in note


def test_engines_that_are_absent_are_named_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line of 80 columns where none is here, also where the lock has no image: that comes after an engine."""
    names = ("docker", "podman", "apptainer", "enroot")
    engines = tuple((DOCKER, Engine.find(replace(DOCKER, name=f"no-{name}"))) for name in names)
    monkeypatch.setattr(choice, "find_container_engines", lambda: engines)
    monkeypatch.setattr(choice, "which", lambda _name: None)
    notes: list[str] = []
    for device in ("cuda", "cpu"):
        choose_launcher(EngineOptions(), replace(NEEDS, device=device), notes.append)
    assert notes == [SENTENCES["engines_that_are_absent_are_named"]] * 2


def test_a_plan_without_points_needs_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever answers would have all of its images: none."""
    monkeypatch.setattr(choice, "find_container_engines", lambda: pytest.fail("no engine is looked for"))
    nothing = LaunchRequirements(backends=(), device="cpu", request=ContainerRequest())
    assert choose_launcher(EngineOptions(), nothing, pytest.fail) == Local(sys.executable)


@pytest.mark.usefixtures("down")
def test_a_named_engine_that_is_down_is_the_machines_trouble() -> None:
    """Exit 3, with the daemon's words and the ways on."""
    with pytest.raises(MachineError, match="connection refused; install or start it, choose another --engine"):
        choose_launcher(EngineOptions(engine="docker"), NEEDS, print)


def test_a_named_engine_without_an_image_names_the_way_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has an image of torch for CPUs."""
    monkeypatch.setattr(OciEngine, "find", lambda _engine: EngineFacts(name="docker", version="28"))
    with pytest.raises(MachineError, match=r"has no image .*; or run without containers: --engine none"):
        choose_launcher(EngineOptions(engine="docker"), replace(NEEDS, device="cpu"), print)


@pytest.mark.usefixtures("down")
def test_an_image_asked_for_by_name_is_not_stepped_over() -> None:
    """Whoever names an image doesn't want to run without."""
    with pytest.raises(MachineError, match="no engine has the requested image"):
        choose_launcher(EngineOptions(image="vllm-0.31.0"), NEEDS, print)


def test_none_takes_the_python_it_is_given() -> None:
    """And so does auto: a Python of this machine is in no image."""
    for engine in ("none", "auto"):
        options = EngineOptions(engine=engine, python=sys.executable)
        assert choose_launcher(options, NEEDS, print) == Local(sys.executable)
    with pytest.raises(UsageError, match="goes with --engine none"):
        choose_launcher(EngineOptions(engine="docker", python=sys.executable), NEEDS, print)


@pytest.mark.parametrize("options", [EngineOptions(engine="none"), EngineOptions(python=sys.executable)])
def test_none_runs_no_image(options: EngineOptions) -> None:
    """Whoever names an image would else measure this machine's Python in its place."""
    with pytest.raises(UsageError, match="engine none runs no image; leave out --image"):
        choose_launcher(replace(options, image="vllm-0.31.0"), NEEDS, print)


@pytest.mark.parametrize("python", ["/nowhere/python3", "no-such-python", "pyproject.toml"])
def test_a_python_that_is_no_program(python: str) -> None:
    """Told before a run's folder is made, for it would fail in every attempt."""
    with pytest.raises(UsageError, match=f"--python {python}: no such program; name an interpreter"):
        choose_launcher(EngineOptions(engine="none", python=python), NEEDS, print)


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ("echo here", "it runs no Python; name an interpreter that has the backends"),
        ("echo '[\"3.9.18\", {}]'", r"Python 3\.9\.18; workers need 3\.10 or newer"),
        ("exit 1", "it runs no Python"),
    ],
)
def test_a_program_that_runs_no_worker(tmp_path: Path, printed: str, message: str) -> None:
    """Refused before a run's folder is made, for it would fail in every attempt."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{printed}\n")
    program.chmod(0o755)
    with pytest.raises(UsageError, match=f"--python {program}: {message}"):
        choose_launcher(EngineOptions(engine="none", python=str(program)), NEEDS, print)


def test_a_secret_that_the_shell_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Told before anything starts."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(OciEngine, "find", lambda _engine: EngineFacts(name="docker", version="28"))
    needs = LaunchRequirements(backends=("torch",), device="cpu", request=ContainerRequest(secrets=("HF_TOKEN",)))
    with pytest.raises(UsageError, match="HF_TOKEN, which the environment doesn't have"):
        choose_launcher(EngineOptions(engine="docker", lock=tmp_path / "images.toml"), needs, print)


@pytest.mark.parametrize("value", ["", "abc", "two\nlines"])
def test_a_secret_that_is_none(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Every engine refuses what it couldn't pass on or keep out of a log, none too."""
    monkeypatch.setenv("HF_TOKEN", value)
    needs = LaunchRequirements(backends=("torch",), device="cpu", request=ContainerRequest(secrets=("HF_TOKEN",)))
    with pytest.raises(UsageError, match="HF_TOKEN must be one line of 4 characters or more"):
        choose_launcher(EngineOptions(engine="none"), needs, print)


def _mounting(source: Path) -> LaunchRequirements:
    request = ContainerRequest(mounts=(Mount(source=str(source), target="/data"),), environment={"NCCL_ALGO": "Ring"})
    return LaunchRequirements(backends=("torch",), device="cpu", request=request)


def test_a_mount_is_what_a_link_leads_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A link to a folder is that folder; one into what belongs to the host alone is refused before anything starts."""
    seen: list[str] = []

    def launcher(_engine: OciEngine, _facts: EngineFacts, needs: LaunchRequirements, *_: Any, **__: Any) -> Local:
        seen.extend(mount.source for mount in needs.request.mounts)
        return Local()

    monkeypatch.setattr(OciEngine, "find", lambda _engine: EngineFacts(name="docker", version="28"))
    monkeypatch.setattr(OciEngine, "launcher", launcher)
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    choose_launcher(EngineOptions(engine="docker"), _mounting(tmp_path / "link"), print)
    assert seen == [str(tmp_path / "data")]
    (tmp_path / "proc").symlink_to("/proc")
    with pytest.raises(UsageError, match=r"mounts: .*proc leads to /proc, and /proc belongs to the host alone"):
        choose_launcher(EngineOptions(engine="docker"), _mounting(tmp_path / "proc"), print)


@pytest.mark.usefixtures("down")
@pytest.mark.parametrize("engine", ["none", "auto"])
def test_what_has_no_effect_without_a_container_is_named(tmp_path: Path, engine: str) -> None:
    """A variable that the suite sets for its container may change what is measured."""
    notes: list[str] = []
    choose_launcher(EngineOptions(engine=engine), _mounting(tmp_path), notes.append)
    expected = f"no container, so the suite's [container] has no effect: environment NCCL_ALGO; mounts {tmp_path}"
    assert notes[-1] == expected
