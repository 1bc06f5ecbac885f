"""The one place where errors become messages and exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import click

from pybench.cli.exit_codes import INTERNAL, INTERRUPTED, MACHINE, exit_code_of
from pybench.cli.io import echo
from pybench.model.errors import PybenchError, fault_text


class ErrorBoundary(click.Group):
    """A command that ends with its own exit code, one line for an error, and never a traceback."""

    judging: frozenset[str] = frozenset()
    """Commands whose exit code is a verdict."""

    def main(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - click's own signature
        """Run the command line. Standard output or error that is closed or full stops nothing."""
        with _guarded_output():
            return super().main(*args, **options)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options. The options for help and version print, and end the command."""
        with _checked_output(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        """Run the command. A signal is named as Ctrl-C is."""
        from pybench.machine.signals import signals_interrupt

        with _checked_output(ctx):
            try:
                # From the start on: finding an engine or making an image file takes long before a run begins.
                with signals_interrupt():
                    _require_memory()
                    return super().invoke(ctx)
            except PybenchError as error:
                _end(ctx, str(error), exit_code_of(error))
            except KeyboardInterrupt:
                _end(ctx, "interrupted", INTERRUPTED)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                _end(ctx, f"{where}{fault_text(error)}; details: {_details(error)}", MACHINE)
            except MemoryError:
                _end(ctx, "too little memory: free some of the host's, or raise the limit (ulimit -v)", MACHINE)
            except Exception as error:  # noqa: BLE001 - whatever else goes wrong is a defect of pybench
                text = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                _end(ctx, f"internal error: {text}; please report it with {_details(error)}", INTERNAL)


_LEAST_BYTES, _BYTES_PER_CORE = 2**28, 2**25
"""Address space of pybench: below it OpenBLAS, which has a buffer for each core, ends the process with code 1."""


def _require_memory() -> None:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < _LEAST_BYTES + _BYTES_PER_CORE * len(os.sched_getaffinity(0)):
        raise MemoryError


_LONGEST_LINE = 4000
"""Characters of a line of an error, which may quote a file's own text."""


@contextmanager
def _checked_output(ctx: click.Context) -> Iterator[None]:
    """A full disk under standard output is an error of a command that only prints. A verdict keeps its code."""
    ended: click.exceptions.Exit | None = None
    try:
        yield
    except click.exceptions.Exit as end:
        ended = end
    group = ctx.command
    is_verdict = isinstance(group, ErrorBoundary) and ctx.invoked_subcommand in group.judging
    sys.stdout.flush()
    error = sys.stdout.error if isinstance(sys.stdout, _GuardedStream) else None
    if error is not None and error.errno != errno.EPIPE:
        echo(f"pybench: standard output: {error.strerror}", err=True)
        if (ended is None or ended.exit_code == 0) and not is_verdict:
            ctx.exit(MACHINE)
    if ended is not None:
        raise ended


def _end(ctx: click.Context, message: str, code: int) -> None:
    from pybench.report.table import ends, printable

    # A file's name or text may be in it, of any length: none of it begins a line of its own.
    lines = [ends(printable(line), _LONGEST_LINE) for line in f"pybench: {message}".splitlines()]
    echo("\n  ".join(lines), err=True)
    ctx.exit(code)


def _details(error: BaseException) -> str:
    """Write the traceback to a file of this user's and give its path; where that fails, the place of the error."""
    import tempfile
    import traceback

    try:
        with tempfile.NamedTemporaryFile("w", prefix="pybench-error-", suffix=".txt", delete=False) as file:
            file.write("".join(traceback.format_exception(error)))
            return file.name
    except OSError:
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        return f"{frame.f_code.co_filename}:{line}"


_LAST_STANDARD = 2


class _GuardedStream:
    """A text stream that keeps its first ``error`` and writes nothing more after it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write ``text``, or drop it."""
        if self.error is None:
            try:
                return self._stream.write(text)
            except OSError as error:
                self._drop(error)
        return len(text)

    def flush(self) -> None:
        """Flush what was written, or drop it."""
        if self.error is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._drop(error)

    def _drop(self, error: OSError) -> None:
        self.error = error
        # Python flushes its own stream when it ends, and would fail again.
        for name in ("stdout", "stderr"):
            if getattr(sys, f"__{name}__") is self._stream:
                setattr(sys, f"__{name}__", None)


@contextmanager
def _guarded_output() -> Iterator[None]:
    """Guard both streams. Absent ones (``>&-``) are opened as /dev/null: no file may take such a stream's number."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_STANDARD:
            os.set_inheritable(descriptor, True)
        os.close(descriptor)
        for name in ("stdin", "stdout", "stderr"):
            if getattr(sys, name) is None:
                mode = "r" if name == "stdin" else "w"
                setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - for the whole process
    before = sys.stdout, sys.stderr
    out, err = _GuardedStream(sys.stdout), _GuardedStream(sys.stderr)
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        out.flush()
        err.flush()
        # A stream that failed stays guarded: Python flushes it when it ends.
        sys.stdout = before[0] if out.error is None else out
        sys.stderr = before[1] if err.error is None else err
