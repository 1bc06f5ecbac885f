"""From an engine's refusal to the next try: the least that helps, and on record."""

from __future__ import annotations

import pytest

from pybench.model.container import EngineFacts
from pybench.run.engines.oci.confinement import Confinement, after_refusal

DOCKER = EngineFacts(name="docker", version="28", runtime="runc", runtimes=("runc",))
PODMAN = EngineFacts(name="podman", version="5", runtime="crun", runtimes=("crun", "runc"))
HARD = {"nofile": 20000, "nproc": 96365, "memlock": 8388608, "stack": -1}
RUNC = (
    "runc create failed: error setting rlimits for ready process: error setting rlimit type {}: operation not permitted"
)
CRUN = "crun: setrlimit `RLIMIT_NOFILE`: Operation not permitted: OCI permission denied"


def names(confinement: Confinement | None) -> list[str]:
    assert confinement is not None
    return [relaxation.name for relaxation in confinement.relaxations]


@pytest.mark.parametrize(
    ("complaint", "limit", "value"),
    [
        (RUNC.format(7), "nofile", "20000:20000"),
        (RUNC.format(8), "memlock", "8388608:8388608"),
        (CRUN, "nofile", "20000:20000"),
    ],
)
def test_a_refused_limit_becomes_this_process_own(complaint: str, limit: str, value: str) -> None:
    """Runc says it by number, crun by name."""
    loosened = after_refusal(Confinement(), complaint, HARD, PODMAN)
    assert loosened is not None
    assert loosened.ulimits[limit] == value
    assert names(loosened) == [f"ulimit_{limit}"]


def test_a_limit_refused_again_is_halved_and_told_once() -> None:
    """Engines may hold themselves lower than their caller; below a usable least there is no next try."""
    tried = []
    confinement: Confinement | None = Confinement()
    while confinement:
        confinement = after_refusal(confinement, RUNC.format(6), HARD, PODMAN)
        if confinement:
            tried.append(confinement.ulimits["nproc"])
            assert names(confinement) == ["ulimit_nproc"]
    assert tried[:3] == ["96365:96365", "48182:48182", "24091:24091"]
    assert tried[-1] == "376:376"


@pytest.mark.parametrize(
    ("complaint", "engine", "name", "options"),
    [
        ("sd-bus call: dbus: no such file", PODMAN, "cgroup_manager", ("--cgroup-manager", "cgroupfs")),
        ("OCI runtime error: crun: cgroup: no", PODMAN, "runtime", ("--runtime", "runc")),
    ],
)
def test_podmans_own_ways(complaint: str, engine: EngineFacts, name: str, options: tuple[str, ...]) -> None:
    """Each is tried once."""
    loosened = after_refusal(Confinement(), complaint, HARD, engine)
    assert loosened is not None
    assert loosened.engine_options == options
    assert names(loosened) == [name]
    assert after_refusal(loosened, complaint, HARD, engine) is None


def test_a_root_that_can_not_be_read_only_is_let_go() -> None:
    """A GPU hook has to write into it; the record says so."""
    complaint = "nvidia-cdi-hook: open /etc/ld.so.cache~: read-only file system"
    loosened = after_refusal(Confinement(), complaint, HARD, DOCKER)
    assert loosened is not None
    assert "--read-only" not in loosened.options()
    assert names(loosened) == ["writable_root"]
    assert after_refusal(loosened, complaint, HARD, DOCKER) is None


def test_no_pids_controller() -> None:
    """Rootless without delegation."""
    loosened = after_refusal(Confinement(), "controller `pids` is not available", HARD, DOCKER)
    assert loosened is not None
    assert "--pids-limit" not in loosened.options()


def test_what_nobody_knows_is_not_guessed_at() -> None:
    """The engine's own words are the error then."""
    assert after_refusal(Confinement(), "no space left on device", HARD, DOCKER) is None
