"""What commands print and write: text in the terminal's characters, and files that are whole or not there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any, TextIO

import click

from pybench.files.safe_folder import opened_folder, write_file
from pybench.model.errors import UsageError, fault_text

if TYPE_CHECKING:
    from pybench.report.export.judged import Judged

_BLOCKS = dict(zip("▁▂▃▄▅▆▇█", "_.,-~=*#", strict=True))
_ASCII = str.maketrans(
    {**_BLOCKS, "±": "+-", "≥": ">=", "≤": "<=", "→": "->", "µ": "u", "°": "", "─": "-", "…": "...", "·": "."}
)


def terminal_options() -> dict[str, Any]:
    """The terminal's ``width``, 80 columns where there is none; ``color`` for a terminal that did not refuse it."""
    from shutil import get_terminal_size  # its imports take as long as a usage error

    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return {"width": get_terminal_size((80, 24)).columns, "color": color}


def echo(text: str, *, nl: bool = True, err: bool = False, stream: TextIO | None = None) -> None:
    """Print ``text`` in the stream's characters; on a terminal, lines at the left edge break between words."""
    stream = stream or (sys.stderr if err else sys.stdout)
    text = encodable(text, stream.encoding)
    click.echo(broken_lines(text) if stream.isatty() else text, stream, nl=nl)


def broken_lines(text: str) -> str:
    """Lines that are wider than the terminal, broken between words; those with an indent hold commands to copy."""
    width: int = terminal_options()["width"]
    wrap = TextWrapper(width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(line if len(line) <= width or line[:1].isspace() else wrap.fill(line) for line in text.split("\n"))


def encodable(text: str, encoding: str | None) -> str:
    """``text`` in characters that ``encoding`` has."""
    wanted = encoding or "ascii"
    try:
        text.encode(wanted)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(wanted, "replace").decode(wanted)
    return text


def require_apart(files: Iterable[tuple[str, Path | None]]) -> None:
    """Raise ``UsageError`` where two options name one file; a pipe or a device takes both."""
    options: dict[Path, str] = {}
    for option, file in files:
        if file is not None and (file.is_file() or not file.exists()):
            other = options.setdefault(file.resolve(), option)
            if other != option:
                raise UsageError(f"{option} {file}: {other} writes this file, too; name another")


@contextmanager
def kept_writable(option: str, file: Path) -> Iterator[None]:
    """Refuse, by ``UsageError``, a file that can't be written; leave none behind that was not there."""
    was_there = file.exists()
    try:
        # A pipe without a reader is refused: opening it otherwise would wait for one.
        opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        reason = fault_text(error, "make its folder first")
        raise UsageError(f"{option} {file}: cannot be written: {reason}; nothing was run") from error
    try:
        if not was_there:
            file.resolve().unlink()  # a link that led nowhere stays
        yield
    finally:
        os.close(opened)


def json_text(value: object) -> str:
    """A value as JSON, and a line's end."""
    import json

    return json.dumps(value, indent=2) + "\n"


def write_json(file: Path | None, value: object) -> None:
    """Write a value as JSON; nothing when ``file`` is ``None``. Raises ``UsageError``."""
    if file is not None:
        write_bytes(file, json_text(value).encode())


def write_outputs(outputs: Sequence[tuple[str, Path]], judged: Judged, value: object) -> None:
    """Write what was judged in each format to its file, ``value`` as JSON; ``-`` prints. Raises ``UsageError``."""
    from pybench.report.export.judged import FORMATS

    for name, file in outputs:
        text = json_text(value) if name == "json" else FORMATS[name](judged)
        if str(file) == "-":
            echo(text, nl=False)
        else:
            write_bytes(file, text.encode())


def write_shown(file: Path, content: bytes) -> None:
    """Write a report and print its file and size, except for a pipe. Raises ``UsageError``."""
    write_bytes(file, content)
    if file.is_file():
        echo(f"{file}: {len(content):,} bytes")


def write_bytes(file: Path, content: bytes) -> None:
    """Replace a file, or a link's target, once all bytes are on disk; write to pipes. Raises ``UsageError``."""
    try:
        if file.exists() and not file.is_file():
            # A pipe whose reader has gone is an error, and not waited for.
            opened = os.open(file, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.set_blocking(opened, True)
            with open(opened, "wb") as stream:  # noqa: PTH123 - a descriptor
                stream.write(content)
        else:
            target = file.resolve()
            with opened_folder(target.parent) as folder:
                write_file(folder, target.name, content)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {fault_text(error, 'make its folder first')}") from error
