"""Runs over two hosts: their joint record, and the loss of one."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from pybench.model.errors import MachineError
from pybench.run.hosts.rendezvous import Rendezvous
from tests.processes import wait_for
from tests.run.two_hosts import SECRET, TwoHosts, ended

_HOUR_S = 3600
_LATER = ("unshare", "--time", "--monotonic", str(_HOUR_S), "--")


@pytest.fixture
def two(tmp_path: Path, warm_pybench: Path) -> TwoHosts:
    return TwoHosts(tmp_path, pybench=warm_pybench)


def _may_live_later() -> bool:
    """Whether this machine lets a process live in another time."""
    if shutil.which(_LATER[0]) is None:
        return False
    return subprocess.run((*_LATER, "true"), capture_output=True, check=False).returncode == 0


def test_two_hosts_measure_one_training(tmp_path: Path, fake_library: Path, warm_pybench: Path) -> None:
    """Each starts its ranks and samples its GPU; ranks and joules are on one clock and stand up to verification.

    The CLOCK_MONOTONIC of one host is an hour ahead, where this machine allows that.
    """
    gpus = {"PYBENCH_NVML_LIBRARY": str(fake_library), "FAKE_NVML_DEVICES": "1", "FAKE_NVML_DRIVER": "580.7.hosts"}
    loaded = {**gpus, "FAKE_NVML_LOAD": "constant:400"}
    two = TwoHosts(tmp_path, ranks=2, environment=loaded, pybench=warm_pybench)
    for name in "ab":
        two.behave(name, FAKE_STEP_MS="100", FAKE_NAME="NVIDIA H200")
    before = _LATER if _may_live_later() else ()
    with (
        two.host("a", CUDA_VISIBLE_DEVICES="0") as a,
        two.host("b", before=before, CUDA_VISIBLE_DEVICES="0", FAKE_NVML_HOST="1") as b,
    ):
        code, out = ended(a)
        assert (code, ended(b)[0]) == (4, 0), out
    assert "on each of the hosts a and b (clocks joined to" in " ".join(out.split())
    (record,) = two.records()
    assert record.failure is None
    assert [rank.header.rank for rank in record.ranks] == [0, 1]
    assert [(part.name, part.ranks) for part in record.hosts] == [("a", (0, 1)), ("b", (1, 1))]
    clock = record.hosts[1].clock
    assert abs(clock.offset_ns / 1e9 - (_HOUR_S if before else 0)) < 1
    assert [host.name for host in two.run.read_manifest().machines] == ["a", "b"]
    assert record.energy is not None
    assert len({gpu.uuid for gpu in record.energy.gpus}) == 2
    if clock.is_close:  # a machine that is too busy to answer within a millisecond leaves the joules unknown
        energy_j = 400 * (record.energy.end_ns - record.energy.start_ns) / 1e9
        assert record.energy.energy_j == pytest.approx(2 * energy_j, rel=0.2)
        bounds = [(gpu.energy_low_j, gpu.energy_high_j) for gpu in record.energy.gpus]
        assert all(low and high and low <= energy_j <= high for low, high in bounds), (bounds, energy_j)
    else:
        assert record.energy.energy_j is None
    verified = CliRunner().invoke(main, ("verify", str(two.run.path)))
    assert verified.exit_code in {0, 4}, verified.output
    assert two.left() == []


def test_a_host_that_dies_is_named_and_the_run_goes_on_later(two: TwoHosts) -> None:
    """Within its attempt: nothing of that is recorded, nothing is left, and --resume measures it."""
    for name in "ab":
        two.behave(name, "hang")
    with two.host("a") as a, two.host("b") as b:
        two.wait_for_worker()
        b.kill()
        code, out = ended(a)
    assert code == 3, out
    assert "pybench: host b: the connection was closed; it was lost in train attempt 1 (0 attempts kept)" in out
    assert f"on every host: pybench run --resume {two.run.path} --rendezvous HOST:PORT --nodes 2" in out
    wait_for(lambda: two.left() == [])
    assert two.records() == ()
    for name in "ab":
        two.behave(name)
    with two.host("a", "--resume", str(two.run.path)) as a, two.host("b") as b:
        code, out = ended(a)
        assert (code, ended(b)[0]) == (4, 0), out
    assert [record.failure for record in two.records()] == [None]


@pytest.mark.parametrize(
    ("signalled", "codes", "line"),
    [("a", (130, 3), "the run was interrupted on the host that leads"), ("b", (3, 130), "host b: it was interrupted")],
)
def test_a_signal_ends_all_hosts(two: TwoHosts, signalled: str, codes: tuple[int, int], line: str) -> None:
    """SIGTERM, as a scheduler sends it before it kills: no worker outlives its host's command."""
    for name in "ab":
        two.behave(name, "hang")
    with two.host("a") as a, two.host("b") as b:
        two.wait_for_worker()
        assert two.left()
        (a if signalled == "a" else b).send_signal(signal.SIGTERM)
        found = ended(a), ended(b)
    assert tuple(code for code, _ in found) == codes, found
    assert line in (found[1] if signalled == "a" else found[0])[1]
    assert f"on every host: pybench run --resume {two.run.path} --rendezvous HOST:PORT --nodes 2" in found[0][1]
    assert two.left() == []


def test_a_rank_that_fails_on_another_host_is_named(two: TwoHosts) -> None:
    """Its cause is recorded with its host."""
    two.behave("b", "crash")
    two.behave("a", "hang")
    with two.host("a") as a, two.host("b") as b:
        code, out = ended(a)
        assert (code, ended(b)[0]) == (3, 0), out
    (record,) = two.records()
    assert record.failure is not None
    assert record.failure.cause == "exit_code"
    assert record.failure.message.startswith("host b: exit code 9 without a result")
    assert "--- host b ---" in (two.run.path / record.log).read_text()
    assert two.left() == []


def test_hosts_of_one_name(two: TwoHosts) -> None:
    """One line on each, and no run."""
    with two.host("a") as a, two.host("b", PYBENCH_HOST_NAME="a") as b:
        for code, out in (ended(a), ended(b)):
            assert code == 3
            assert "2 hosts are called a; give each its own with PYBENCH_HOST_NAME" in out
    assert not (two.folder / "a" / "runs").exists()


def _run(two: TwoHosts, monkeypatch: pytest.MonkeyPatch, *options: str, secret: str = SECRET) -> tuple[int, str]:
    monkeypatch.chdir(two.folder / "a")
    monkeypatch.setenv("PYBENCH_RENDEZVOUS_SECRET", secret)
    monkeypatch.setenv("PYBENCH_HOST_NAME", "a")
    result = CliRunner().invoke(main, ("run", "hosts.toml", "--python", "./python", *options))
    return result.exit_code, result.output


def test_hosts_that_do_not_meet(two: TwoHosts, no_driver: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cause is one line with what to do next, and no run is begun."""
    meet = ("--rendezvous", f"127.0.0.1:{two.port}", "--nodes", "2", "--join-limit", "1s")
    expected = {
        (*meet, "--node-rank", "0"): (
            3,
            "1 of 2 hosts have joined within 1 s (a); start the same command on the others",
        ),
        (*meet, "--node-rank", "1"): (3, "the host that leads did not answer within 1 s"),
        (*meet, "--node-rank", "2"): (2, "--node-rank 2: of 2 nodes the last is 1"),
        (*meet, "--image", "vllm"): (2, "--image vllm: name the engine that all hosts have: --engine docker or podman"),
        (*meet, "--aa", "2"): (2, "--rendezvous measures a suite once"),
        ("--nodes", "2"): (2, "--rendezvous HOST:PORT and --nodes N go together"),
        ("--rendezvous", "here", "--nodes", "2"): (2, "--rendezvous here: give HOST:PORT, such as node1:29400"),
        ("--rendezvous", "no.such.host.invalid:1", *meet[2:]): (3, "no such host here"),
        ("--rendezvous", "no.such.host.invalid:1", *meet[2:], "--node-rank", "1"): (3, "no such host here"),
        ("--rendezvous", f"[fe80::5%lo]:{two.port}", *meet[2:], "--node-rank", "0"): (3, f"[fe80::5%lo]:{two.port}: c"),
    }
    for options, (code, line) in expected.items():
        found = _run(two, monkeypatch, *options)
        assert found[0] == code, found
        assert line in found[1]
    for secret, line in (("", "PYBENCH_RENDEZVOUS_SECRET is needed on all hosts"), ("short", "is shorter than 16")):
        code, out = _run(two, monkeypatch, *meet, secret=secret)
        assert (code, line in out) == (2, True), out
    assert not (two.folder / "a" / "runs").exists()


@pytest.mark.parametrize("address", ["127.0.1.1", "::1"])
def test_a_name_that_is_loopback_on_its_own_host(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian's installer writes it: the lead refuses at once, as no host could join."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_args, **_keys: [(family, socket.SOCK_STREAM, 6, "", (address, 1))]
    )
    with pytest.raises(MachineError, match=f"node1 is the loopback address {address}, which no other host can reach"):
        Rendezvous.parse("node1:29400", 2, 0).listener()
    assert Rendezvous.parse("localhost:29400", 2, 0).is_on_loopback
