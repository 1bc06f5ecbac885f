"""The one place where errors become messages and exit codes."""

from __future__ import annotations

import errno
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from pybench.cli.guarded_output import guarded_output, output_error
from pybench.machine.signals import signals_interrupt


class ErrorBoundary(click.Group):
    """A command that ends with its own exit code, one line for an error, and never a traceback."""

    def main(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - click's own signature
        """Run the command line. Standard output or error that is closed or full stops nothing."""
        with guarded_output():
            return super().main(*args, **options)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options. Those of help and version print, and end the command."""
        with _checked_output(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        """Run the command. A signal is named as Ctrl-C is."""
        with _checked_output(ctx):
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        from pybench.cli.exit_codes import INTERNAL, INTERRUPTED, MACHINE, exit_code_of
        from pybench.model.errors import PybenchError

        try:
            # From the start on: finding an engine or making an image file takes long before a run begins.
            with signals_interrupt():
                return super().invoke(ctx)
        except PybenchError as error:
            _end(ctx, str(error), exit_code_of(error))
        except KeyboardInterrupt:
            _end(ctx, "interrupted", INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            _end(ctx, f"{where}{error.strerror or error}; details: {_details(error)}", MACHINE)
        except Exception as error:  # noqa: BLE001 - whatever else goes wrong is a defect of pybench
            text = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            _end(ctx, f"internal error: {text}; please report it with {_details(error)}", INTERNAL)


_LONGEST_LINE = 4000
_JUDGING = frozenset({"run", "power", "compare", "gate", "fleet"})


@contextmanager
def _checked_output(ctx: click.Context) -> Iterator[None]:
    """A full disk under standard output is an error of a command that only prints. A verdict keeps its code."""
    try:
        yield
    except click.exceptions.Exit as ended:
        _check_output(ctx, ended.exit_code)
        raise
    _check_output(ctx, 0)


def _check_output(ctx: click.Context, code: int) -> None:
    from pybench.cli.exit_codes import MACHINE

    error = output_error()
    if error is None or error.errno == errno.EPIPE:
        return
    click.echo(f"pybench: standard output: {error.strerror}", err=True)
    if code == 0 and ctx.invoked_subcommand not in _JUDGING:
        ctx.exit(MACHINE)


def _end(ctx: click.Context, message: str, code: int) -> None:
    from pybench.report.text.printable import ends, printable

    # A file's own text may be in it, of any length.
    lines = [ends(printable(line), _LONGEST_LINE) for line in f"pybench: {message}".splitlines()]
    click.echo("\n".join(lines), err=True)
    ctx.exit(code)


def _details(error: BaseException) -> str:
    """Write the traceback to a file of this user's and give its path; where that fails, the place of the error."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="pybench-error-", suffix=".txt", delete=False) as file:
            file.write("".join(traceback.format_exception(error)))
            return file.name
    except OSError:
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        return f"{frame.f_code.co_filename}:{line}"
