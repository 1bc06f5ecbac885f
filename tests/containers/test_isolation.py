"""Forbidden actions, tried by a worker from inside a container."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pybench.model.container import ContainerRequest
from pybench.model.machine import Place
from pybench.run.engines.base import Launch
from pybench.run.engines.oci.launcher import OciLauncher
from pybench.run.engines.stage import stage_worker
from tests.containers.boxed_engine import Boxed, inside

pytestmark = pytest.mark.timeout(1200)  # another session may have the engines first

# Everything is tried for real; only what the kernel answers counts.
TRIES = r"""
import ctypes, json, os, resource, socket
def attempt(deed):
    try:
        deed()
    except OSError as error:
        return error.strerror
    return "done"
def write(folder):
    path = os.path.join(folder, "written")
    with open(path, "w") as stream:
        stream.write("x")
    os.unlink(path)
def connect():
    with socket.create_connection(("192.0.2.1", 80), timeout=5):
        pass
def system(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
kernel = ("/proc", "/sys")
folders = [top for top, _, _ in os.walk("/") if not top.startswith(kernel)]
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
print(json.dumps({
    "capabilities": sorted({status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}),
    "no_new_privileges": status["NoNewPrivs"],
    "uid": os.getuid(), "gid": os.getgid(),
    "become_root": attempt(lambda: os.setuid(0)),
    "writable": [folder for folder in folders if attempt(lambda: write(folder)) == "done"],
    "stage": attempt(lambda: open("/pybench/stage/pybench/__init__.py", "a")),
    "kernel_knob": attempt(lambda: open("/proc/sys/kernel/hostname", "w")),
    "mount": attempt(lambda: system("mount", b"none", b"/mnt", b"tmpfs", 0, None)),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "connect": attempt(connect),
    "environment": sorted(os.environ),
    "shm_bytes": os.statvfs("/dev/shm").f_frsize * os.statvfs("/dev/shm").f_blocks,
    "stack": resource.getrlimit(resource.RLIMIT_STACK)[0],
    "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
    "processes": [name for name in os.listdir("/proc") if name.isdigit()],
}))
"""


def job(folder: Path, environment: Mapping[str, str]) -> Launch:
    stage_worker(folder / "worker")
    exchange = folder / "attempts" / "decode_backend=torch,tensor_parallel=1.1" / "exchange"
    exchange.mkdir(parents=True)
    compiled = folder / "compiled" / "torch"
    compiled.mkdir(parents=True, exist_ok=True)
    return Launch(
        stage=folder / "worker",
        exchange=exchange,
        backend="torch",
        num_processes=1,
        places=(Place(),),
        token=f"isolation/{secrets.token_hex(8)}",
        host_environment=environment,
        compiled=compiled,
    )


def test_nothing_gets_out(launcher: OciLauncher, tmp_path: Path) -> None:
    """No capability, no network, nothing writable but the job's two folders and tmp; no variable of the shell."""
    shell = {**os.environ, "NCCL_DEBUG": "WARN", "SECRET": "s3cret", "HF_TOKEN": "t0ken", "TORCH_HOME": "/home/me"}
    found = inside(launcher, job(tmp_path, shell), TRIES)
    assert found["capabilities"] == ["0000000000000000"]
    assert found["no_new_privileges"] == "1"
    assert (found["uid"], found["gid"]) == ((65534, 65534) if os.getuid() == 0 else (os.getuid(), os.getgid()))
    assert found["become_root"] == "Operation not permitted"
    # Other than /tmp: memory that engines mount for one container. Podman adds /var/tmp to a read-only root.
    ours = {"/tmp", "/pybench/compiled", "/pybench/exchange"}
    assert ours <= set(found["writable"]) <= ours | {"/var/tmp", "/dev/shm", "/dev/mqueue"}
    assert found["stage"] in {"Read-only file system", "Permission denied"}
    assert found["kernel_knob"] in {"Read-only file system", "Permission denied"}
    assert found["mount"] in {"Operation not permitted", "Permission denied"}
    assert found["interfaces"] == ["lo"]
    assert found["connect"] == "Network is unreachable"
    assert "NCCL_DEBUG" in found["environment"]
    assert not {"SECRET", "HF_TOKEN", "TORCH_HOME"}.intersection(found["environment"])
    assert found["shm_bytes"] == 8 * 2**30
    assert found["stack"] == 2**26
    lowered = {relaxation.name for relaxation in launcher.container.relaxations}
    assert found["memlock"] == -1 or "ulimit_memlock" in lowered
    assert found["processes"] == ["1"]


def test_what_one_worker_compiles_the_next_one_finds(launcher: OciLauncher, tmp_path: Path) -> None:
    """By the variables that libraries read, as the user inside; each has another container."""
    names = ("XDG_CACHE_HOME", "CUDA_CACHE_PATH", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    write = f"""
import json, os, pathlib
folders = [pathlib.Path(os.environ[name]) for name in {names}]
for folder in folders:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "code").write_text("compiled")
print(json.dumps(len(folders)))
"""
    read = f"""
import json, os, pathlib
print(json.dumps([(pathlib.Path(os.environ[name]) / "code").read_text() for name in {names}]))
"""
    for number, (code, expected) in enumerate(((write, 4), (read, ["compiled"] * 4))):
        folder = tmp_path / str(number)
        task = replace(job(folder, dict(os.environ)), compiled=tmp_path / "0" / "compiled" / "torch")
        assert inside(launcher, task, code) == expected


def test_a_relaxation_is_granted_and_on_record(boxed: Boxed, tmp_path: Path) -> None:
    """A writable root and user 0 are there when the suite asks, and only then."""
    launcher = boxed.launcher(ContainerRequest(relax=("writable_root", "root_user")))
    found = inside(launcher, job(tmp_path, dict(os.environ)), TRIES)
    assert found["uid"] == 0
    assert "/usr" in found["writable"]
    assert found["capabilities"] == ["0000000000000000"]
    named = {relaxation.name for relaxation in launcher.container.relaxations}
    assert {"writable_root", "root_user"} <= named


def test_a_secret_reaches_the_worker_and_no_record(
    boxed: Boxed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes by a file that only this user reads, and stands in no command line."""
    monkeypatch.setenv("HF_TOKEN", "t0ken")
    launcher = boxed.launcher(ContainerRequest(secrets=("HF_TOKEN",), environment={"NAME": "a=b $(id) 'c'"}))
    task = job(tmp_path, dict(os.environ))
    code = "import json, os; print(json.dumps([os.environ['HF_TOKEN'], os.environ['NAME']]))"
    assert inside(launcher, task, code) == ["t0ken", "a=b $(id) 'c'"]
    assert "t0ken" not in " ".join(launcher.argv(task))
    assert "t0ken" not in repr(launcher.container)
    assert "t0ken" not in repr(task)
    file = task.exchange.parent / "environment"
    assert file.stat().st_mode & 0o777 == 0o600


def test_pids_are_bounded(launcher: OciLauncher, tmp_path: Path) -> None:
    """A fork bomb ends in its own container."""
    code = """
import json, threading, time
count = 0
try:
    for count in range(20000):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
except RuntimeError:
    pass
print(json.dumps(count), flush=True)
import os; os._exit(0)
"""
    if launcher.confinement.pids_limit is None:
        pytest.skip("this machine lets the engine bound no pids, and the record says so")
    small = OciLauncher(**{**vars(launcher), "confinement": launcher.confinement.relaxed("test", "", pids_limit=64)})
    assert 32 <= inside(small, job(tmp_path, dict(os.environ)), code) <= 64
