"""Few sentences of documents, docstrings, comments and messages need a second reading.

The patterns find a style, not words: sentences without a subject, relative clauses in place of a noun, vague places.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import ROOT

CEILINGS = {"docs": 97, "pybench": 110, "tests": 116}
"""Doubtful sentences in 1,000, rounded up. A rate only goes down: lower it when a folder is rewritten."""
DOUBTS = (
    re.compile(r"^(?:Of|By|What|Those|Which|Whose|Beside|Nor|Else|Than)\b(?!.*\?)"),
    re.compile(r"\b(?:of|in|by|from|with|to|for|beside|behind) (?:which|what|whom|whose)\b", re.IGNORECASE),
    re.compile(r"\bwhat (?:is|are|was|were|it|they|no|has|have|can|may|lies|stands)\b(?!.*\?)", re.IGNORECASE),
    re.compile(r"\b(?:those|that|ones?) (?:that|of|which|whose)\b", re.IGNORECASE),
    re.compile(r"\b(?:so|as|too) (?:many|few|much|far)\b(?! as possible)", re.IGNORECASE),
    re.compile(r"\b(?:beside|apart|alike|likewise|thereby|by (?:itself|themselves))\b", re.IGNORECASE),
    re.compile(r"\b(?:is|are|was|were) none\b", re.IGNORECASE),
)
_CODE = re.compile(r"``?[^`]*``?|https?://\S+")
_END = re.compile(r"(?<=[.!?;])\s+(?=[A-Z`\"'(\[])")
_COMMENTS = re.compile(r"(?:^ *# .*\n?)+", re.MULTILINE)
_FEWEST_WORDS = 5


def sentences(path: Path) -> Iterator[str]:
    """The sentences of a Markdown file or a Python module, of five words or more."""
    source = path.read_text(encoding="utf-8")
    for text in _paragraphs(source) if path.suffix == ".md" else _prose(source):
        found = (" ".join(sentence.split()) for sentence in _END.split(_CODE.sub("X", text)))
        yield from (sentence for sentence in found if len(sentence.split()) >= _FEWEST_WORDS)


def _paragraphs(source: str) -> Iterator[str]:
    """Paragraphs and items of lists, without code, headings and tables."""
    text = re.sub(r"^```.*?^```$", "", source, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?:\s*[|#<!]| {4}\w).*$", "", text, flags=re.MULTILINE)
    yield from re.split(r"\n\s*\n", re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n", text, flags=re.MULTILINE))


def _prose(source: str) -> Iterator[str]:
    """Strings and comments; neighbouring lines of comments are one text."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    yield from (node.value for node in nodes if isinstance(node.value, str))
    yield from (re.sub(r"^\s*# ?", "", block, flags=re.MULTILINE) for block in _COMMENTS.findall(source))


def doubtful(found: Iterator[str]) -> tuple[list[str], int]:
    """The doubtful ones of some sentences, and the number of all."""
    texts = list(found)
    return [text for text in texts if any(doubt.search(text) for doubt in DOUBTS)], len(texts)


@pytest.mark.parametrize("folder", CEILINGS)
def test_few_sentences_are_doubtful(folder: str) -> None:
    """No more in 1,000 than the folder's ceiling."""
    files = sorted((ROOT / folder).rglob("*.md" if folder == "docs" else "*.py"))
    doubts, total = doubtful(sentence for file in files for sentence in sentences(file))
    assert 1000 * len(doubts) <= CEILINGS[folder] * total, f"{1000 * len(doubts) / total:.1f} of 1,000: {doubts[:20]}"


def test_the_check_can_fail(tmp_path: Path) -> None:
    """A sentence without a subject and a clause in place of a noun count, in documents and in modules."""
    module, page = tmp_path / "a.py", tmp_path / "a.md"
    code = (
        '"""Of LoRA the layers have less."""',
        "# The fit reads what is left open.",
        'x = "The plan has two points."',
    )
    module.write_text("\n".join(code))
    page.write_text("# Of what is not counted here\n\nThe plan has two points.\n\n- Nor has one of them any figure.\n")
    assert doubtful(sentences(module)) == (["Of LoRA the layers have less.", "The fit reads what is left open."], 3)
    assert doubtful(sentences(page)) == (["Nor has one of them any figure."], 2)
