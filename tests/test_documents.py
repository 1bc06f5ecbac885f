"""Links, paths, commands, options and tables of the documents agree with the program."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from pydantic import TypeAdapter

from pybench.cli.exit_codes import BY_VERDICT
from pybench.cli.main import main
from pybench.model.results import Results
from pybench.report.run.flags import OF_JOULES
from tests.docs_script import script
from tests.documents import (
    DOCS,
    DOCUMENTS,
    INCOMPLETE,
    NAMED,
    README,
    ROOT,
    commands,
    extras,
    is_a_target,
    name,
    without_blocks,
    written,
)
from tests.programs import commands_below

MAX_README_LINES = 150
_ROW = re.compile(r"^\| `(pybench [^`]+)` \|(.*)\|$", re.MULTILINE)
_OPTION = re.compile(r"`(--[a-z][^`]*|-[a-z](?: [^`]*)?)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_PATH = re.compile(r"(?<![/\w])((?:pybench|tests|suites|docs|csrc|containers)/[\w/*.-]*)")
_TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
_FOREIGN_OPTIONS = {"--gpus", "--nv", "--net", "--pid", "--ipc", "--require-hashes"}
"""Options of docker, apptainer, enroot and pip that documents name."""


def generator() -> ModuleType:
    """docs/tables.py."""
    return script("tables")


def accepts(command: str) -> None:
    """Pybench has the subcommands and options; a choice is named with all its values, make's target is there."""
    program, *words = shlex.split(command)
    if program == "make":
        is_a_target(command)
        return
    node: click.Command = main
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "--":
            return
        if word.startswith("-"):
            options = [option for option in node.params if word in option.opts]
            assert options or word in {"-h", "--help"}, f"{command}: no option {word}"
            if "|" in following:
                assert following.split("|") == list(getattr(options[0].type, "choices", ())), command
        elif isinstance(node, click.Group):
            names = word.split("|")
            below = commands_below(node)
            assert set(names) <= below.keys(), f"{command}: no command {word}"
            node = below[names[0]]


def test_commands_are_found_wherever_they_stand() -> None:
    """A block's language and a missing prompt hide nothing."""
    text = (
        "```console\n$ make run\nmake: done\n```\n    pybench plan S  # why\n```text\n$ ls\nan answer\n```\n"
        "```sh\npip install .\n```\nmake no mistake: pybench run\n\n    make\n    makes\n"
    )
    assert list(commands(text)) == ["make run", "pybench plan S", "ls", "pip install .", "make"]


@pytest.mark.parametrize("command", sorted(NAMED | INCOMPLETE))
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
    assert {command.split()[1] for command, _ in rows} == commands_below(main).keys()
    for command, text in rows:
        for option in _OPTION.findall(text):
            accepts(f"{command} {option}")


def options(node: click.Command) -> Iterator[str]:
    """Every option of a command and of those below it."""
    for option in node.params:
        yield from option.opts
    for below in commands_below(node).values():
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
    """A placeholder equals a wildcard; other paths are ignored."""
    text = "`pybench/worker/NAME.py`, `tests/benchmarks/test_sampler_*.py`, `pybench/gone/`, `lib/x.so`, `runs/1/`"
    assert paths(text) == {"pybench/worker/*.py", "tests/benchmarks/test_sampler_*.py", "pybench/gone"}
    assert not list(ROOT.glob("pybench/gone"))


def absent_tests(text: str) -> list[str]:
    """Tests that a text names, as ``FILE::NAME``, and that are not there."""
    found = _TEST.findall(text)
    return [f"{file}::{test}" for file, test in found if f"\ndef {test}(" not in (ROOT / file).read_text()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_tests_are_there(document: Path) -> None:
    """A test that is renamed takes its mention along."""
    assert absent_tests(written(document)) == []


def test_the_check_of_tests_can_fail() -> None:
    """A test that is not there is named."""
    here = "tests/test_documents.py"
    assert absent_tests(f"`{here}::test_tests_are_there` `{here}::test_gone`") == [f"{here}::test_gone"]


def anchors(document: Path) -> set[str]:
    """As GitHub makes them from headings: lower case, no punctuation, hyphens for spaces."""
    text = without_blocks(document.read_text(encoding="utf-8"))
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
    """No generated table is left out of the documents, and none lacks its end: it would never be written."""
    marked = r"^<!-- table: ([^>]+) -->$(?:(?!^<!-- table: ).)*?^<!-- end of table -->$"
    shown = {table for path in DOCUMENTS for table in re.findall(marked, path.read_text(), re.MULTILINE | re.DOTALL)}
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
    """docs/results.md names whatever ``pybench schema results`` has."""
    schema = TypeAdapter(Results).json_schema()
    fields = {field for one in (schema, *schema["$defs"].values()) for field in one.get("properties", ())}
    described = set(re.findall(r"\w+", (DOCS / "results.md").read_text(encoding="utf-8")))
    assert fields - described == set()


def test_every_energy_flag_is_described() -> None:
    """docs/results.md has each flag of joules."""
    described = re.findall(r"`(\w+)`", (DOCS / "results.md").read_text(encoding="utf-8"))
    assert {"throttled", "lost", *OF_JOULES} - set(described) == set()
