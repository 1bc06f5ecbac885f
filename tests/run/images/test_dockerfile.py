"""Recipes that pin all they use, and those that don't."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pybench.model.errors import FileError, Problem
from pybench.run.images.lock import read_lock
from pybench.run.images.registry import check_dockerfile

CONTAINERS = Path(__file__).parents[3] / "containers"
DIGEST = f"docker.io/a/b@sha256:{'0123456789abcdef' * 4}"


def problems(tmp_path: Path, text: str) -> tuple[Problem, ...]:
    path = tmp_path / "Dockerfile"
    path.write_text(text)
    try:
        check_dockerfile(path)
    except FileError as error:
        return error.problems
    return ()


@pytest.mark.parametrize(
    "text",
    [
        f"FROM {DIGEST}\n",
        f"# FROM b\nfrom --platform=linux/amd64 {DIGEST} as one\nFROM one\nFROM scratch\nCOPY --from=one /a /a\n",
        f"FROM {DIGEST}\nRUN pip install \\\n  # why\n  --require-hashes \\\n  -r r.txt\n",
        f'FROM {DIGEST}\nRUN ["python", "-m", "pip", "install", "--require-hashes", "-r", "r.txt"]\n',
        f"FROM {DIGEST}\nRUN apt-get install -y pipx && pip list\nLABEL x='pip install'\n",
    ],
)
def test_pinned(tmp_path: Path, text: str) -> None:
    """A digest, an earlier stage and hashes pin."""
    assert problems(tmp_path, text) == ()


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("FROM a/b:latest\n", 1, "FROM a/b:latest "),
        ("ARG BASE\nFROM ${BASE} AS x\n", 2, "FROM ${BASE} "),
        ("FROM a@sha256:12\n", 1, "FROM a@sha256:12 "),
        (f"FROM {DIGEST}\n\nRUN pip3 install torch\n", 3, "without --require-hashes"),
        (f"FROM {DIGEST}\nRUN x && \\\n  python -m pip  install -r r.txt\n", 2, "without --require-hashes"),
        (f'FROM {DIGEST}\nRUN ["python","-m","pip","install","torch"]\n', 2, "without --require-hashes"),
    ],
)
def test_not_pinned(tmp_path: Path, text: str, line: int, says: str) -> None:
    """With the line of the instruction, and what to write."""
    (problem,) = problems(tmp_path, text)
    assert (problem.kind, problem.line, says in problem.message) == ("rule", line, True)


def test_every_problem_is_told(tmp_path: Path) -> None:
    """Once."""
    assert len(problems(tmp_path, "FROM a\nFROM b\nRUN pip install c\n")) == 3


def test_no_text(tmp_path: Path) -> None:
    """The system's or the decoder's reason."""
    (tmp_path / "Dockerfile").write_bytes(b"\xff")
    with pytest.raises(FileError) as error:
        check_dockerfile(tmp_path / "Dockerfile")
    assert [(found.kind, found.file) for found in error.value.problems] == [
        ("unreadable", str(tmp_path / "Dockerfile"))
    ]


@pytest.mark.parametrize("path", sorted(CONTAINERS.glob("*/Dockerfile")), ids=lambda path: path.parent.name)
def test_the_shipped_recipes(path: Path) -> None:
    """From an image of the lock, by the digest that stands for all platforms, and every package by hash."""
    check_dockerfile(path)
    bases = re.findall(r"^FROM (\S+)$", path.read_text(), re.MULTILINE)
    locked = {f"{image.repository}@{image.index_digest}" for image in read_lock(CONTAINERS / "images.toml").images}
    assert bases
    assert set(bases) <= locked
    files = re.findall(r"-r \S+/(\S+\.txt)", path.read_text())
    assert files
    for name in files:
        text = re.sub(r"#.*|\\\n", "", path.with_name(name).read_text())
        lines = [line for line in text.splitlines() if line.strip()]
        assert all(re.fullmatch(r"\S+==\S+( +--hash=sha256:[0-9a-f]{64})+ *", line) for line in lines)
