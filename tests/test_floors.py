"""Rooms are floors: a module imports lower floors and its own room only, and no two modules import each other."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import pybench
from pybench.model.backend import BACKENDS

PACKAGE = Path(pybench.__file__).parent
PRODUCTS = ("evidence", "explain", "fleet", "nightly")
FLOORS = {
    "": 9,  # the package itself, which hands its public names out of the rooms
    "model": 0,
    "core": 1,
    "files": 2,
    "machine": 3,
    "power": 4,
    "report": 5,
    "run": 6,
    "cli": 7,
    **dict.fromkeys(PRODUCTS, 8),
}
FACES = ("command", "page", "report", "text")
"""First words of a product's modules that serve its command: they use the command line's floor and reports."""
OWED: set[tuple[str, str]] = set()
"""Imports that go up or sideways today; the set only shrinks."""
EXTENSIONS = {"_energy": ("power",), "_nvml": ("machine", "power")}
# The worker is outside the floors: it runs in another process, maybe in an image with only Python and its backend.
WORKER, MODEL = "worker", "model"
WORKER_ROOMS = {WORKER, MODEL}
_TRAIN = "pybench.worker.backends.torch.train"
FOREIGN = {
    "pybench.worker.launcher": {"torch"},
    **{f"pybench.worker.backends.{name}": set(traits.packages) for name, traits in BACKENDS.items()},
    "pybench.worker.backends.common_torch": {"torch"},
    "pybench.worker.backends.torch.node": {"torch"},
    "pybench.worker.backends.engine": {"torch"},
    "pybench.worker.backends.turn": {"torch"},
    "pybench.worker.backends.turn.delivery": {"safetensors"},
    "pybench.worker.backends.torch.checkpoints": {"torch", "safetensors"},
    "pybench.worker.backends.server.entry": {"torch", "transformers", "safetensors"},
    _TRAIN: {"torch"},
    f"{_TRAIN}.evaluation": {"torch", "transformers"},
    f"{_TRAIN}.model": {"torch", "peft"},
    f"{_TRAIN}.nf4": {"bitsandbytes"},
    f"{_TRAIN}.update": {"bitsandbytes"},
    f"{_TRAIN}.strategies": {"torch", "transformers"},
    f"{_TRAIN}.strategies.accelerate": {"accelerate"},
    f"{_TRAIN}.strategies.deepspeed": {"deepspeed"},
    f"{_TRAIN}.strategies.torchtune": {"torchtune"},
    f"{_TRAIN}.strategies.unsloth": {"safetensors", "tokenizers", "unsloth"},
}
"""What else a module or room of the worker may import: the package that a backend is about."""
HEAVY = ("torch", "transformers", "numpy", "pydantic", "rich")

Imports = dict[str, set[str]]
"""Module to the modules it names in imports, anywhere in its source."""


def modules(package: Path) -> dict[str, Path]:
    """Dotted names and files of all modules below ``package``."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(package: Path) -> Imports:
    """Every import; ``from a import b`` is one of ``a.b`` where that is a module, else of ``a``."""
    ours = modules(package)
    known = {*ours, *(f"pybench.{name}" for name in EXTENSIONS)}
    return {name: set(_imported(ast.parse(path.read_text(encoding="utf-8")), known)) for name, path in ours.items()}


def _imported(tree: ast.AST, known: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name their module in full"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else str(node.module)


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def floor(module: str) -> int:
    """Where a module is; ``cli.main`` is on top, it has the list of products' commands."""
    home = room(module)
    if module == "pybench.cli.main":
        return FLOORS[""]
    return FLOORS[PRODUCTS[0]] if is_face(module) else FLOORS[home]


def is_face(module: str) -> bool:
    """Whether a module serves a product's command."""
    home, *inner = module.split(".")[1:] or ("",)
    return home in {*PRODUCTS, "power"} and inner != [] and inner[0].startswith(FACES)


def breaches(found: Imports) -> list[str]:
    """Imports that go up or sideways."""
    wrong = []
    for module, targets in found.items():
        home = room(module)
        for target in sorted(t for t in targets if t.startswith("pybench.")):
            away = room(target)
            if WORKER in {home, away}:
                allowed = home == away or (home == WORKER and away == MODEL)
            else:
                # An extension is not a room.
                callers = EXTENSIONS.get(away, (away,))
                allowed = home in callers or (away in FLOORS and floor(target) < floor(module))
            if not allowed:
                wrong.append(f"{module} imports {target}")
    return wrong


def foreign(found: Imports, rooms: set[str]) -> set[tuple[str, str]]:
    """Top-level packages besides ours and the standard library's, by module, in ``rooms``."""
    return {
        (module, top)
        for module, targets in found.items()
        if room(module) in rooms
        for top in {target.split(".")[0] for target in targets}
        if top != "pybench" and top not in sys.stdlib_module_names
    }


def allowed_foreign(module: str, package: str) -> bool:
    return any(package in FOREIGN.get(name, ()) for name in (module, module.rpartition(".")[0]))


def too_new(*paths: Path) -> str:
    """What in ``paths`` Python 3.10 does not have; empty when nothing."""
    vermin = (sys.executable, "-c", "from vermin import main; main()")
    options = ("--quiet", "--no-tips", "--violations", "--eval-annotations", "--target=3.10-")
    backports = ("--backport", "dataclasses", "--backport", "typing")
    done = subprocess.run(
        [*vermin, *options, *backports, *map(str, paths)], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def loaded_by(module: str) -> set[str]:
    """Modules in a fresh interpreter that imported ``module``."""
    code = f"import json, sys; import {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.fixture(scope="module")
def found() -> Imports:
    return imports(PACKAGE)


def test_every_folder_is_a_room() -> None:
    """A new folder must be given its floor here and in docs/contributing.md."""
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders | {""} == {*FLOORS, WORKER}


def test_every_room_says_what_it_is_for() -> None:
    """Its ``__init__`` has a docstring and nothing else."""
    for path in PACKAGE.glob("*/__init__.py"):
        (only,) = ast.parse(path.read_text(encoding="utf-8")).body
        assert isinstance(only, ast.Expr), path
        assert isinstance(only.value, ast.Constant), path


def test_imports_go_down(found: Imports) -> None:
    """No module imports a higher floor, or a neighbour of its own."""
    assert {tuple(breach.split(" imports ")) for breach in breaches(found)} == OWED


def test_one_module_imports_nvmls_binding() -> None:
    """It gives calls their errors and tries; the native sampler makes all others."""
    found = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if re.search(r"\bpynvml\b", path.read_text())]
    assert found == [Path("machine/nvml.py")]


def test_imports_make_no_circle(found: Imports) -> None:
    """Also not within a room. The package itself waits with its imports until a name is asked for."""
    ours = {module: {t for t in targets if t in found} - {module, "pybench"} for module, targets in found.items()}
    TopologicalSorter(ours).prepare()


def test_worker_and_model_need_only_the_standard_library(found: Imports) -> None:
    """A foreign image has no more, but for the package that a backend is about."""
    assert [pair for pair in sorted(foreign(found, WORKER_ROOMS)) if not allowed_foreign(*pair)] == []


def test_the_checks_can_fail(tmp_path: Path) -> None:
    """A small tree with one breach of each kind."""
    files = {
        "__init__.py": "",
        "model/suite.py": "import numpy\n",
        "core/plan.py": "def late():\n    from pybench.files import journal\n",
        "files/journal.py": "from pybench.core import plan\nimport pybench.machine.clock\n",
        "machine/clock.py": "import pybench._nvml\n",
        "report/power.py": "from pybench import _energy, _nvml\nfrom pybench.fleet import pairs\n",
        "fleet/pairs.py": "from pybench.nightly import gate\n",
        "nightly/gate.py": "",
        "run/loop.py": "from pybench.worker.main import run_rank\n",
        "worker/main.py": "from pybench.model import suite\n",
    }
    for name, text in files.items():
        path = tmp_path / "pybench" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    small = imports(tmp_path / "pybench")
    assert breaches(small) == [
        "pybench.core.plan imports pybench.files.journal",
        "pybench.files.journal imports pybench.machine.clock",
        "pybench.fleet.pairs imports pybench.nightly.gate",
        "pybench.report.power imports pybench._energy",
        "pybench.report.power imports pybench._nvml",
        "pybench.report.power imports pybench.fleet.pairs",
        "pybench.run.loop imports pybench.worker.main",
    ]
    assert foreign(small, WORKER_ROOMS) == {("pybench.model.suite", "numpy")}
    assert not allowed_foreign("pybench.model.suite", "numpy")
    assert not allowed_foreign("pybench.worker.main", "torch")
    assert not allowed_foreign("pybench.worker.backends.torch.train", "numpy")
    with pytest.raises(CycleError):
        test_imports_make_no_circle(small)


def test_worker_and_model_run_on_python_3_10(tmp_path: Path) -> None:
    """Images bring their own Python."""
    assert too_new(*(PACKAGE / name for name in sorted(WORKER_ROOMS))) == ""
    (tmp_path / "new.py").write_text("import tomllib\n")
    assert "tomllib" in too_new(tmp_path)


def test_the_command_line_starts_light() -> None:
    """``pybench --help`` must not wait for libraries that it does not use."""
    loaded = loaded_by("pybench.cli.main")
    assert "click" in loaded
    assert loaded.isdisjoint(HEAVY)
    assert not loaded_by("pybench.files.run.folder").isdisjoint(HEAVY)


def test_the_documents_show_these_floors() -> None:
    """A reader finds each room on its floor."""
    text = (PACKAGE.parent / "docs" / "contributing.md").read_text(encoding="utf-8")
    shown = {
        name: floor
        for floor, cell in re.findall(r"^\| (\d|beside) \| ([^|]+) \|", text, re.MULTILINE)
        for name in re.findall(r"`pybench/(\w+)`", cell)
    }
    assert shown == {name: str(floor) for name, floor in FLOORS.items() if name} | {WORKER: "beside"}
