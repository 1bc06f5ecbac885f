"""Enroot with a stand-in that takes the options of enroot's sources: image files, starts and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from pybench.machine.command import CommandResult, run_command
from pybench.model.container import ContainerRequest
from pybench.model.errors import MachineError, PybenchError, UsageError
from pybench.run.engines.base import EngineOptions, LaunchRequirements, get_engine
from pybench.run.engines.choice import choose_launcher
from pybench.run.engines.enroot import engine
from pybench.run.engines.enroot.engine import NAMESPACES, EnrootLauncher, isolations
from tests.golden_sentences import sentences_of
from tests.run.engines.enroot_host import IMAGE, EnrootHost, digest_of, lock_text, manifest_text

SENTENCES = sentences_of("run.engines.enroot")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnrootHost:
    """This machine as a host whose enroot takes all options."""
    made = EnrootHost(tmp_path)
    monkeypatch.setenv("PATH", made.install())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(engine, "_KERNEL", tmp_path / "none")
    (tmp_path / "images.toml").write_text(lock_text(), encoding="utf-8")
    return made


def launched(host: EnrootHost, request: ContainerRequest | None = None) -> EnrootLauncher:
    """Arguments of a run on the CPU."""
    needs = LaunchRequirements(backends=("torch",), device="cpu", request=request or ContainerRequest())
    options = EngineOptions(engine="enroot", lock=host.folder / "images.toml")
    return cast("EnrootLauncher", choose_launcher(options, needs, notify=lambda _text: None))


def loosened(launcher: EnrootLauncher) -> list[str]:
    return [relaxation.name for relaxation in launcher.container.relaxations]


def files(host: EnrootHost) -> list[str]:
    return sorted(path.suffix for path in (host.folder / "cache" / "pybench" / "sqsh").iterdir())


def test_an_image_is_made_once_and_started_as_isolated_as_can_be(host: EnrootHost) -> None:
    """By the digest of the lock; the Python found inside is recorded."""
    first, second = launched(host), launched(host)
    assert host.log == [f"import docker://registry.example#tested@{digest_of(IMAGE)}", "probe", "probe"]
    (image,) = first.container.images
    assert image == second.container.images[0]
    assert image.python is not None
    assert image.digests == (digest_of(IMAGE),)
    assert first.isolation.namespaces == NAMESPACES
    assert loosened(first) == ["pids_limit", "shm_size"]
    assert files(host) == [".lock", ".sqsh"]


@pytest.mark.parametrize(
    ("refused", "request_", "names"),
    [
        ("--ipc", ContainerRequest(), ["gpu_files"]),
        ("--net", ContainerRequest(), ["network"]),
        ("--net,--ipc", ContainerRequest(), ["network", "gpu_files"]),
        ("--net", ContainerRequest(relax=("network",)), ["network"]),
        ("--pid", ContainerRequest(), ["host_pids", "network", "gpu_files"]),
    ],
)
def test_what_a_host_refuses_is_left_out_and_named(
    host: EnrootHost, refused: str, request_: ContainerRequest, names: list[str]
) -> None:
    """A host without syslog has no /dev/log for ``--ipc``, for one."""
    host.install(refused=refused)
    found = launched(host, request_)
    assert loosened(found) == ["pids_limit", "shm_size", *names]
    assert not {f"--{name}" for name in found.isolation.namespaces}.intersection(refused.split(","))


def test_a_version_without_namespaces(host: EnrootHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.1.2 and older restrict /dev at most; doctor names what workers see."""
    monkeypatch.setattr(engine, "run_command", lambda _argv: CommandResult(0, "--mount FSTAB", ""))
    assert [(found.namespaces, found.devices) for found in isolations(online=False)] == [((), True), ((), False)]
    monkeypatch.undo()
    host.program("enroot", "echo 4.1.2")
    (finding,) = get_engine("enroot").findings(get_engine("enroot").find())
    assert "no --pid, --net, --ipc: workers see the host's processes and network" in str(finding)


@pytest.mark.parametrize(
    ("served", "to_enroot", "says"),
    [
        (manifest_text("one"), manifest_text("one"), "the registry serves sha256:.* as registry.example/tested@"),
        (IMAGE, manifest_text("one", "two", "more"), "enroot received another manifest as registry.example/tested@"),
        (IMAGE, manifest_text("one"), "enroot received another manifest"),
    ],
)
def test_another_image_than_the_locked_one_is_refused(host: EnrootHost, served: str, to_enroot: str, says: str) -> None:
    """Enroot itself takes any manifest that a registry serves under a digest. No file is left."""
    host.install(served, to_enroot)
    with pytest.raises(MachineError, match=f"{says}.*until that is explained"):
        launched(host)
    assert files(host) == [".lock"]
    host.install()
    assert launched(host).files["torch"].exists()


def test_what_a_killed_import_left_is_removed(host: EnrootHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blobs beside the file, its unpacked layers on a disk of the host: by the next import, and nothing else is."""
    scratch = host.folder / "scratch"
    (scratch / "ours").mkdir(parents=True)
    monkeypatch.setenv("ENROOT_TEMP_PATH", str(scratch))

    plain = run_command

    def killed(argv: tuple[str, ...], *limit_s: float) -> CommandResult:
        if "import" not in argv:
            return plain(argv, *limit_s)
        for word in argv:
            if word.startswith(("ENROOT_CACHE_PATH=", "ENROOT_TEMP_PATH=")):
                (Path(word.partition("=")[2]) / "left").touch()
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(engine, "run_command", killed)
        patched.setattr("shutil.rmtree", lambda *_places, **_options: None)
        with pytest.raises(SystemExit):
            launched(host)
    assert files(host) == [".blobs", ".lock"]
    assert len(list(scratch.glob("pybench-enroot-*/left"))) == 1
    launched(host)
    assert files(host) == [".lock", ".sqsh"]
    assert [path.name for path in scratch.iterdir()] == ["ours"]


def test_an_index_leads_to_the_image_of_this_platform(host: EnrootHost) -> None:
    """Whose manifest has the digest that the index has of it."""
    platform = lock_text().partition('platforms."')[2].partition('"')[0]
    child = {"os": "linux", "architecture": platform.partition("/")[2]}
    index = f'{{"manifests": [{{"digest": "{digest_of(IMAGE)}", "platform": {child}}}]}}'.replace("'", '"')
    host.program(
        "skopeo", f'case "$*" in *{digest_of(IMAGE)}) cat "{host.folder}/served";; *) printf %s \'{index}\';; esac'
    )
    text = lock_text().replace(f'platforms."{platform}" = {{ manifest', f'platforms."{platform}" = {{}}\nindex_digest')
    (host.folder / "images.toml").write_text(
        text.replace(f'index_digest = "{digest_of(IMAGE)}" }}', f'index_digest = "{digest_of(index)}"')
    )
    launched(host)
    assert host.log[0] == f"import docker://registry.example#tested@{digest_of(IMAGE)}"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("enroot-mksquashovlfs: failed to create mount namespace: Operation not permitted", "install enroot.caps"),
        ("[ERROR] Command not found: parallel", "Command not found: parallel; install parallel"),
        ("tar: No space left on device", "free space in /.* bytes free"),
        ("[ERROR] URL x returned error code: 401 Unauthorized", "sha256:.*: URL x returned error code: 401"),
    ],
)
def test_an_import_that_fails_names_the_reason_and_a_remedy(host: EnrootHost, error: str, says: str) -> None:
    """In enroot's words; nothing is left but the lock."""
    host.program("enroot", f'[ "$1" = version ] && echo 4.1.2 && exit\n>"$3"\necho "{error}" >&2\nexit 1')
    with pytest.raises(MachineError, match=f"enroot can't make an image file of .*{says}"):
        launched(host)
    assert files(host) == [".lock"]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("enroot-nsenter: failed to create user namespace: Operation not permitted", "allow user namespaces"),
        ("[ERROR] Command not found: nvidia-container-cli, see x", "install libnvidia-container-tools"),
        ("OSError: libcuda.so.1: cannot open shared object file", "enroot's hook 98-nvidia.sh"),
        ("enroot-switchroot: failed to execute: /bin/sh: No such file", "an image needs a shell"),
        ("other", "pybench doctor lists"),
    ],
)
def test_an_image_that_does_not_start_names_the_reason_and_a_remedy(host: EnrootHost, error: str, says: str) -> None:
    """After every way to start it was tried."""
    launched(host)
    host.program("enroot", f'[ "$1" = version ] && echo 4.1.2 && exit\necho "{error}" >&2\nexit 1')
    with pytest.raises(MachineError, match=f"enroot can't start a worker in image tested: .*{says}"):
        launched(host)


def test_a_host_that_can_run_nothing(host: EnrootHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reason with what to install or to set, before anything is fetched."""
    find = get_engine("enroot").find
    host.program("enroot", "echo 3.5.0")
    assert find().reason == SENTENCES["a_host_that_can_run_nothing"]
    host.program("enroot", 'echo "mkdir: /run/enroot: Permission denied" >&2; exit 1')
    assert str(find().reason).endswith("Permission denied; let XDG_RUNTIME_DIR name a folder of yours")
    host.install()
    monkeypatch.setattr(engine, "_PROGRAMS", {"nonesuch": "a-package"})
    assert find().reason == SENTENCES["a_host_that_can_run_nothing_2"]
    monkeypatch.undo()
    monkeypatch.setenv("PATH", host.install())
    monkeypatch.setattr(engine, "_KERNEL", tmp_path)
    assert find().reason is None
    for folder, user, name in (("kernel", 1000, "unprivileged_userns_clone"), ("user", 0, "max_user_namespaces")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text("0\n")
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        off = f"{folder}.{name}"
        assert find().reason == f"enroot needs user namespaces, which {off} = 0 switches off: set it with sysctl"


def test_what_enroot_would_change_or_cannot_grant(host: EnrootHost) -> None:
    """A value in quotes, and a root file system to write."""
    with pytest.raises(UsageError, match="enroot takes the quotes off the value of A; remove them"):
        launched(host, ContainerRequest(environment={"A": '"b"'}))
    with pytest.raises(UsageError, match="enroot can't grant writable_root"):
        launched(host, ContainerRequest(relax=("writable_root",)))


def test_auto_makes_no_image_file(host: EnrootHost) -> None:
    """Only an engine that was named fetches."""
    needs = LaunchRequirements(backends=("torch",), device="cpu", request=ContainerRequest())
    found = get_engine("enroot")
    with pytest.raises(PybenchError, match="enroot has no image file of tested"):
        found.launcher(found.find(), needs, EngineOptions(lock=host.folder / "images.toml"), print, fetch=False)
    assert host.log == []
