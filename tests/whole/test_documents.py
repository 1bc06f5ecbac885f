"""Documents: every command is run, every link leads somewhere, every table matches the program."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent
from types import ModuleType, SimpleNamespace

import click
import pytest
from pydantic import TypeAdapter

import pybench
from pybench.cli.exit_codes import BY_VERDICT
from pybench.cli.main import main
from pybench.compute.energy import flags
from pybench.model.results import Results
from tests.builders import NO_DRIVER

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
DOCUMENTS = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("[!.]*/*.md"), *DOCS.glob("**/*.md")} - {*ROOT.glob("build/**/*.md")}
)
MAX_README_LINES = 150
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$|((?:^ {4}[^\n]*\n)+)", re.MULTILINE | re.DOTALL)
_PROGRAM = re.compile(r"(pybench|make|pip|python3?|git|docker|podman)( |$)")
_PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b")
_INLINE = re.compile(r"`((?:pybench|make)(?: [^`\n]+)?)`")
_ROW = re.compile(r"^\| `(pybench [^`]+)` \|(.*)\|$", re.MULTILINE)
_OPTION = re.compile(r"`(--[a-z][^`]*|-[a-z](?: [^`]*)?)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"(?<![/\w])((?:pybench|tests|suites|docs|csrc|containers)/[\w/*.-]*)")
_UNUSED = re.compile(r"\b(?:told|foretold|foretells?|mend|says|asked|same again|the like|its like|thirst\w*|hunger)\b")
_FOREIGN_OPTIONS = {"--gpus", "--nv", "--net", "--require-hashes"}
"""Options of docker, apptainer and pip that documents name."""


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


@cache
def generator() -> ModuleType:
    """docs/tables.py, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commands(text: str) -> Iterator[str]:
    """Lines of fenced or indented blocks behind a prompt or, where a block has none, that begin with a program."""
    for fenced, indented in _BLOCK.findall(text):
        lines = (fenced or dedent(indented)).splitlines()
        prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        for line in prompted or filter(_PROGRAM.match, lines):
            yield line.partition("  #")[0].rstrip()


def written(document: Path) -> str:
    return document.read_text(encoding="utf-8").replace("\\|", "|")


def accepts(command: str) -> None:
    """Pybench has the subcommands and options; a choice is named with all its values, make's target is there."""
    program, *words = shlex.split(command)
    if program == "make":
        is_a_target(command, ROOT)
        return
    node: click.Command = main
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--":
            return
        if word.startswith("-"):
            options = [option for option in node.params if word in option.opts]
            assert options or word in {"-h", "--help"}, f"{command}: no option {word}"
            if "|" in following:
                assert following.split("|") == list(getattr(options[0].type, "choices", ())), command
        elif isinstance(node, click.Group):
            names = word.split("|")
            assert set(names) <= set(node.commands), f"{command}: no command {word}"
            node = node.commands[names[0]]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """By a shell, in a folder where only the suites are at hand."""
    folder.mkdir()
    (folder / "suites").symlink_to(ROOT / "suites")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, **dict([NO_DRIVER])}
    return subprocess.run(command, shell=True, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def succeeds(command: str, folder: Path) -> None:
    """Exit 0 and something to read."""
    done = run(command, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def writes(command: str, folder: Path) -> None:
    """What is redirected is there."""
    assert run(command, folder).returncode == 0
    assert (folder / command.rpartition("> ")[2]).stat().st_size > 0


def measures(command: str, folder: Path) -> None:
    """Every point is measured; the verdict depends on this machine."""
    done = run(command, folder)
    assert done.returncode in {0, 1, 4}, done.stderr
    assert "verdict: " in done.stdout
    (results,) = folder.glob("runs/*/results.json")
    assert '"status": "ok"' in results.read_text()
    assert '"status": "failed"' not in results.read_text()


def would_measure(command: str, folder: Path) -> None:
    """The same suite and options have a plan of some points; another command measures the whole suite."""
    succeeds(command.replace("pybench run", "pybench plan"), folder)


def examines(command: str, folder: Path) -> None:
    """The doctor may find something missing."""
    done = run(command, folder)
    assert done.returncode in {0, 3}, done.stderr
    assert "NVIDIA driver" in done.stdout


def asks_registries(command: str, folder: Path) -> None:
    """The registry agrees, disagrees, or does not answer: each with its message."""
    done = run(command, folder)
    assert done.returncode in {0, 1, 3}, done.stderr
    assert done.stdout or done.stderr.startswith("pybench: ")
    assert "Traceback" not in done.stderr


def is_a_target(command: str, folder: Path) -> None:
    """Make knows what it would do; ``make test`` can't run itself."""
    done = subprocess.run([*shlex.split(command), "-n"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ".venv/bin/" in done.stdout


def installs(command: str, folder: Path) -> None:
    """The extra is there; tests/whole/test_install.py builds and installs a wheel."""
    (extra,) = re.findall(r"\[(\w+)\]", command)
    assert extra in extras()


def rewrites_tables(command: str, folder: Path) -> None:
    """Nothing is left to rewrite."""
    done = subprocess.run([sys.executable, *shlex.split(command)[1:], "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0


def extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"])


Check = Callable[[str, Path], None]
CHECKS: dict[str, Check] = {
    "make run": is_a_target,
    "make check": is_a_target,
    "make test": is_a_target,
    "make bench": is_a_target,
    "pip install '.[torch]'": installs,
    "python docs/tables.py": rewrites_tables,
    "pybench doctor": examines,
    "pybench plan suites/tp_scaling.toml": succeeds,
    "pybench images list": succeeds,
    "pybench images verify": asks_registries,
    "pybench run suites/tp_scaling.toml": measures,
    "pybench run suites/node_check.toml": measures,
    "pybench run suites/tp_scaling.toml -k tensor_parallel=2": would_measure,
    "pybench run tp_scaling --max-gpus 4": would_measure,
    "pybench report suites/measured/tp_scaling-h200x4-20261121.json": succeeds,
    "pybench schema > suite.schema.json": writes,
}
"""Each command once, whatever the number of documents that show it."""
SHOWN = {command for document in DOCUMENTS for command in commands(written(document))}
NAMED = {command for document in DOCUMENTS for command in _INLINE.findall(written(document))}


def test_no_command_goes_unchecked() -> None:
    """And no check outlives its command. One with a placeholder can't run; its words are checked instead."""
    assert {command for command in SHOWN if not _PLACEHOLDER.search(command)} == set(CHECKS)


def test_commands_are_found_wherever_they_stand() -> None:
    """A block's language and a missing prompt hide nothing."""
    text = (
        "```console\n$ make run\nmake: done\n```\n    pybench plan S  # why\n```text\n$ ls\nan answer\n```\n"
        "```sh\npip install .\n```\nmake no mistake: pybench run\n\n    make\n    makes\n"
    )
    assert list(commands(text)) == ["make run", "pybench plan S", "ls", "pip install .", "make"]


@pytest.mark.timeout(1200)  # a run takes one minute on two idle cores
@pytest.mark.parametrize("command", CHECKS)
def test_command(command: str, tmp_path: Path) -> None:
    """Run from a folder with the suites, as a reader would."""
    CHECKS[command](command, tmp_path / "here")


@pytest.mark.parametrize("command", sorted(NAMED | {c for c in SHOWN if _PLACEHOLDER.search(c)}))
def test_a_command_that_is_only_named(command: str) -> None:
    """Nothing is promised that is not there."""
    accepts(command)


@pytest.mark.parametrize("command", ["pybench rnu", "pybench run --nope", "pybench report RUN --format terminal|pdf"])
def test_a_command_that_is_not_there(command: str) -> None:
    """The check can fail."""
    with pytest.raises(AssertionError):
        accepts(command)


def test_the_table_of_commands_is_whole() -> None:
    """Every command has a row in README, and every option of a row belongs to its command."""
    rows = _ROW.findall(written(README))
    assert {command.split()[1] for command, _ in rows} == set(main.commands)
    for command, text in rows:
        for option in _OPTION.findall(text):
            accepts(f"{command} {option}")


def options(node: click.Command) -> Iterator[str]:
    """Every option of a command and of those below it."""
    for option in node.params:
        yield from option.opts
    for below in node.commands.values() if isinstance(node, click.Group) else ():
        yield from options(below)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_options_are_there(document: Path) -> None:
    """An option that a document names belongs to some command."""
    known = {*options(main), *_FOREIGN_OPTIONS}
    assert {option.split()[0] for option in _OPTION.findall(written(document))} - known == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_extras_are_there(document: Path) -> None:
    """What pip is to install is an extra of the project."""
    assert set(re.findall(r"pybench\[(\w+)\]", written(document))) <= extras()


def paths(text: str) -> set[str]:
    """Files and folders of this repository that a text names, ``NAME`` in them standing for any."""
    return {path.replace("NAME", "*").rstrip("/") for path in _PATH.findall(text)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_paths_are_there(document: Path) -> None:
    """A module that moves takes its mention along."""
    assert [path for path in sorted(paths(written(document))) if not list(ROOT.glob(path))] == []


def test_the_check_of_paths_can_fail() -> None:
    """A placeholder and a wildcard are one; what is no path of ours is none."""
    text = "`pybench/worker/NAME.py`, `tests/benchmarks/test_sampler_*.py`, `pybench/gone/`, `lib/x.so`, `runs/1/`"
    assert paths(text) == {"pybench/worker/*.py", "tests/benchmarks/test_sampler_*.py", "pybench/gone"}
    assert not list(ROOT.glob("pybench/gone"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_the_language_is_plain(document: Path) -> None:
    """No word of the table in docs/contributing.md of words that are not used, but in that table."""
    text, _, _ = document.read_text(encoding="utf-8").partition("### Words we do not use")
    assert _UNUSED.findall(text) == []


def anchors(document: Path) -> set[str]:
    """As GitHub makes them from headings: lower case, no punctuation, hyphens for spaces."""
    text = _BLOCK.sub("", document.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


def broken_links(document: Path) -> Iterator[str]:
    """Links to files or headings of this repository that are not there."""
    for link in _LINK.findall(document.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if re.match(r"\w+:", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    """To a file of the repository, and to a heading where one is named."""
    assert list(broken_links(document)) == []


def test_the_check_of_links_can_fail(tmp_path: Path) -> None:
    """A file and a heading that are not there; a heading with punctuation that is."""
    document = tmp_path / "page.md"
    document.write_text("# `A`: b-c\n[x](gone.md) [y](#gone) [z](#a-b-c) [w](https://example.org) [v](page.md#a-b-c)\n")
    assert list(broken_links(document)) == ["gone.md", "#gone"]


def test_every_page_is_in_the_contents() -> None:
    """docs/README.md links every page beside it, and docs/results/README.md every campaign."""
    for folder in (DOCS, DOCS / "results"):
        linked = set(_LINK.findall((folder / "README.md").read_text(encoding="utf-8")))
        assert {page.name for page in folder.glob("*.md")} - {"README.md"} <= linked


def test_the_readme_is_short() -> None:
    """For somebody who has two minutes."""
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MAX_README_LINES


def test_generated_tables_are_up_to_date() -> None:
    """Settings, metrics and strategies as the program has them; ``python docs/tables.py`` rewrites them."""
    assert [str(path) for path, _ in generator().stale()] == []


def test_every_workload_has_its_tables() -> None:
    """No generated table is left out of the documents."""
    shown = {
        table for path in DOCUMENTS for table in re.findall(r"^<!-- table: (.+) -->$", path.read_text(), re.MULTILINE)
    }
    assert shown == set(generator().tables())


def test_a_table_that_is_out_of_date_is_rewritten() -> None:
    """The check can fail; text around a table stays."""
    module = generator()
    old = "before\n<!-- table: effort -->\n\n| old |\n\n<!-- end of table -->\nafter\n"
    new = module.rewritten(old)
    assert "| old |" not in new
    assert "| `attempts` | 1 to 100 | 3 |" in new
    assert new.startswith("before\n<!-- table: effort -->\n")
    assert new.endswith("<!-- end of table -->\nafter\n")
    assert module.rewritten(new) == new


def test_the_readme_has_the_exit_codes() -> None:
    """Verdict by verdict."""
    rows = re.findall(r"^\| ([a-z ]+) \| [^|]+ \| (\d+) \|$", written(README), re.MULTILINE)
    assert {verdict.replace(" ", "_"): int(code) for verdict, code in rows} == BY_VERDICT


def test_every_field_of_the_results_is_described() -> None:
    """docs/results.md names whatever ``pybench schema --results`` has."""
    schema = TypeAdapter(Results).json_schema()
    fields = {field for one in (schema, *schema["$defs"].values()) for field in one.get("properties", ())}
    described = set(re.findall(r"\w+", (DOCS / "results.md").read_text(encoding="utf-8")))
    assert fields - described == set()


def test_every_energy_flag_is_described() -> None:
    """docs/results.md has each flag of the energy's own list."""
    listed = re.findall(r"^(\w+) {2,}\S", flags.__doc__ or "", re.MULTILINE)
    assert set(listed) - set(re.findall(r"`(\w+)`", (DOCS / "results.md").read_text(encoding="utf-8"))) == set()


def blocks(language: str) -> list[tuple[Path, str]]:
    return [
        (document, text)
        for document in DOCUMENTS
        for found, text in _FENCED.findall(document.read_text(encoding="utf-8"))
        if found == language
    ]


def test_suites_that_are_shown_have_a_plan(tmp_path: Path) -> None:
    """A whole suite file in a document is one that pybench accepts."""
    shown = [text for _, text in blocks("toml") if text.startswith("schema = 1")]
    assert shown
    for text in shown:
        (tmp_path / "mine.toml").write_text(text)
        done = subprocess.run(
            [Path(sys.executable).with_name("pybench"), "plan", str(tmp_path / "mine.toml")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_programs_that_are_shown_run(fake_nvml: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    """Python in a document, with a driver that is a stand-in and something to train."""
    fake_nvml(load="constant:400", devices=1)
    shown = blocks("python")
    assert shown
    for _, text in shown:
        torch = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: None))
        exec(compile(text, "document", "exec"), {"pybench": pybench, "torch": torch, "train": lambda: time.sleep(0.5)})
        assert float(capsys.readouterr().out) > 0
