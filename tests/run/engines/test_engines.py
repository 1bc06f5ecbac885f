"""Engines, GPUs and registries by the output of their tools, which stand-ins print."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from pybench.machine.command import run_command
from pybench.model.container import LockedImage, PlatformDigests
from pybench.model.errors import MachineError
from pybench.run.engines.apptainer.engine import build_image
from pybench.run.engines.base import get_engine
from pybench.run.engines.oci.confinement import device_nodes, has_cdi, toolkit_version
from pybench.run.engines.oci.images import images_here, inspect_image
from pybench.run.images.lock import this_platform
from pybench.run.images.registry import read_manifest
from tests.golden_sentences import sentences_of
from tests.programs import shell_program

SENTENCES = sentences_of("run.engines.engines")

DIGEST = "sha256:" + hashlib.sha256(b"one").hexdigest()
OTHER = "sha256:" + hashlib.sha256(b"other").hexdigest()


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH, empty, beside the shell's own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}")
    return folder


def program(folder: Path, name: str, out: object = "", error: str = "", code: int = 0) -> None:
    text = out if isinstance(out, str) else json.dumps(out)
    (folder / "out").write_text(text)
    (folder / "error").write_text(error)
    asked = f'echo "$@" >> "{folder}/asked"\n'
    shell_program(folder / name, f'{asked}/bin/cat "{folder}/out"\n/bin/cat "{folder}/error" >&2\nexit {code}')


def test_no_engine(bin_folder: Path) -> None:
    """Absence is a reason, not an error."""
    assert list(bin_folder.iterdir()) == []
    for name in ("docker", "podman", "apptainer", "enroot"):
        assert get_engine(name).find().reason == f"{name} is not installed"


def test_a_docker_daemon_that_is_down(bin_folder: Path) -> None:
    """In its client's words."""
    down = {"ServerErrors": ["Cannot connect to the Docker daemon at unix:///var/run/docker.sock"]}
    program(bin_folder, "docker", down, code=1)
    reason = get_engine("docker").find().reason
    assert reason is not None
    assert "doesn't answer: Cannot connect to the Docker daemon" in reason


def test_docker_rootless_on_containerds_store(bin_folder: Path, tmp_path: Path) -> None:
    """What decides how ids and limits are to be read."""
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / "nvidia.yaml").write_text("kind: nvidia.com/gpu\ndevices:\n- name: GPU-1f2e\n")
    info = {
        "ServerVersion": "29.1.0",
        "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"],
        "DefaultRuntime": "runc",
        "Runtimes": {"runc": {}, "nvidia": {}},
        "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
        "CDISpecDirs": [str(tmp_path / "cdi")],
        "DockerRootDir": "/data/docker",
    }
    program(bin_folder, "docker", info)
    facts = get_engine("docker").find()
    assert (facts.version, facts.rootless, facts.cdi) == ("29.1.0", True, True)
    assert facts.runtimes == ("nvidia", "runc")


def test_podman_that_refuses(bin_folder: Path) -> None:
    """Its last words are the reason."""
    program(bin_folder, "podman", error="warning: x\nError: cannot set up namespace\n", code=125)
    assert get_engine("podman").find().reason == SENTENCES["podman_that_refuses"]


def test_apptainer(bin_folder: Path) -> None:
    """One line is all it says."""
    program(bin_folder, "apptainer", "apptainer version 1.4.1\n")
    assert get_engine("apptainer").find().version == "1.4.1"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "FATAL: While making image: no space left on device",
            r"no space left on device; free space in /.* bytes free",
        ),
        ("FATAL: unauthorized", "can't make an image file of docker.io/a/b@sha256:.*: FATAL: unauthorized$"),
    ],
)
def test_apptainer_that_makes_no_file(bin_folder: Path, words: str, says: str) -> None:
    """Its last line is the reason; a full disk is named with its free bytes."""
    program(bin_folder, "apptainer", error=words, code=255)
    with pytest.raises(MachineError, match=says):
        build_image(f"docker.io/a/b@{DIGEST}", bin_folder / "x.new")


@pytest.mark.parametrize(
    ("said", "version"), [("NVIDIA Container Toolkit CLI version 1.17.8\n", (1, 17, 8)), ("", None)]
)
def test_toolkit_version(bin_folder: Path, said: str, version: tuple[int, ...] | None) -> None:
    """As numbers, so that 1.9 is older than 1.17."""
    program(bin_folder, "nvidia-ctk", said)
    assert toolkit_version() == version


@pytest.mark.parametrize(
    ("file", "text", "names"),
    [
        ("nvidia.yaml", "kind: nvidia.com/gpu\ndevices:\n- containerEdits: {}\n  name: GPU-1f2e\n", True),
        ("nvidia.json", '{"kind": "nvidia.com/gpu", "devices": [{"name": "GPU-1f2e"}]}', True),
        ("nvidia.yaml", 'kind: nvidia.com/gpu\ndevices:\n- name: "0"\n- name: all\n', False),
        ("other.yaml", "kind: amd.com/gpu\ndevices:\n- name: GPU-1f2e\n", False),
        ("nvidia.txt", "kind: nvidia.com/gpu\ndevices:\n- name: GPU-1f2e\n", False),
    ],
)
def test_cdi_counts_only_with_uuids(tmp_path: Path, file: str, text: str, *, names: bool) -> None:
    """An index, another vendor or a file that no engine reads names none of our GPUs."""
    (tmp_path / file).write_text(text)
    assert has_cdi((str(tmp_path), "/nonexistent")) is names


def test_device_nodes(tmp_path: Path) -> None:
    """By UUID; minors need not follow the PCI order."""
    for bus, uuid, minor in (("0000:1b:00.0", "GPU-a", 3), ("0000:43:00.0", "GPU-b", 0)):
        (tmp_path / bus).mkdir()
        text = f"Model: \t\t NVIDIA H200\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        (tmp_path / bus / "information").write_text(text)
    assert device_nodes(tmp_path) == {"GPU-a": "/dev/nvidia3", "GPU-b": "/dev/nvidia0"}


IMAGE: dict[str, Any] = {"Os": "linux", "Architecture": "amd64", "Id": DIGEST}


@pytest.mark.parametrize(
    ("described", "known"),
    [
        ({**IMAGE, "RepoDigests": [f"docker.io/a/b@{OTHER}"], "Config": {"Labels": None}}, {DIGEST, OTHER}),
        ({**IMAGE, "Id": DIGEST.removeprefix("sha256:"), "Digest": OTHER, "Labels": {}}, {DIGEST, OTHER}),
        ({**IMAGE, "RepoDigests": None, "Config": None}, {DIGEST}),
    ],
)
def test_an_image_is_known_by_all_its_digests(bin_folder: Path, described: dict[str, Any], known: set[str]) -> None:
    """Docker's and podman's ways to say it."""
    program(bin_folder, "docker", [described])
    found = inspect_image("docker", "x")
    assert found is not None
    assert set(found.known_by) == known
    assert found.platform == "linux/amd64"


def test_an_absent_image_and_an_engine_in_trouble(bin_folder: Path) -> None:
    """Two things: the first can be pulled."""
    program(bin_folder, "docker", "[]", error="Error: No such image: x\n", code=1)
    assert inspect_image("docker", "x") is None
    program(bin_folder, "docker", "", error="Cannot connect\n", code=1)
    with pytest.raises(MachineError, match="can't look up x: Cannot connect"):
        inspect_image("docker", "x")
    program(bin_folder, "docker", [{}])
    with pytest.raises(MachineError, match="in a form pybench can't read"):
        inspect_image("docker", "x")


def test_all_locked_images_are_one_question(bin_folder: Path) -> None:
    """A store of many images is asked once. It describes those that it has, and names the others as errors."""
    images = [
        LockedImage(
            name=name,
            repository=f"docker.io/a/{name}",
            tag="1",
            backends=("torch",),
            platforms={this_platform(): PlatformDigests(manifest=digest)},
        )
        for name, digest in (("here", DIGEST), ("absent", OTHER))
    ]
    program(bin_folder, "podman", [{**IMAGE, "Digest": DIGEST}], error="Error: image not known\n", code=125)
    assert images_here("podman", images) == ["here"]
    asked = f"image inspect docker.io/a/here@{DIGEST} docker.io/a/absent@{OTHER}\n"
    assert (bin_folder / "asked").read_text() == asked
    assert images_here("podman", []) == []
    assert (bin_folder / "asked").read_text() == asked


def test_an_index_and_a_manifest() -> None:
    """The digest is taken over the bytes; attestations and other platforms are left out."""
    children = [
        {"digest": DIGEST, "platform": {"os": "linux", "architecture": "amd64"}},
        {"digest": OTHER, "platform": {"os": "unknown", "architecture": "unknown"}},
    ]
    served = json.dumps({"manifests": children}, indent=3).encode()
    index = read_manifest(served)
    assert index.platforms == {"linux/amd64": DIGEST}
    assert (index.config, index.digest) == (None, f"sha256:{hashlib.sha256(served).hexdigest()}")
    image = read_manifest(json.dumps({"config": {"digest": OTHER}, "layers": [{"digest": DIGEST}]}).encode())
    assert (image.config, image.layers) == (OTHER, (DIGEST,))


def test_a_program_that_hangs_or_is_absent(bin_folder: Path) -> None:
    """No answer is an answer."""
    assert run_command(("nonesuch",)).error_line == "nonesuch is not installed"
    shell_program(bin_folder / "hang", "exec /bin/sleep 60")
    assert run_command(("hang",), limit_s=0.2).error_line == SENTENCES["a_program_that_hangs_or_is_absent"]
