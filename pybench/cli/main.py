"""The ``pybench`` command: a table of its subcommands, each imported when it runs."""

from __future__ import annotations

import gc
import os
from importlib import import_module
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

import pybench
from pybench.cli.error_boundary import ErrorBoundary
from pybench.cli.io import echo
from pybench.model.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    """A subcommand: where it is, its line of help, and whether its exit code is a verdict."""

    name: str
    place: str
    help: str
    judges: bool = False


_NIGHTLY = "pybench.nightly"
COMMANDS = (
    Entry("run", "pybench.cli.run:run", "Run SUITE, judge it, and exit with its verdict.", judges=True),
    Entry("plan", "pybench.cli.plan:plan", "Print the points SUITE expands to here, or on GPUs to choose."),
    Entry("doctor", "pybench.cli.plan:doctor", "Report what this machine has and lacks, each with its remedy."),
    Entry("report", "pybench.cli.report:report", "Rebuild a report of RUN."),
    Entry("images", "pybench.cli.images:images", "Show, confirm, change and fetch the locked container images."),
    Entry("ci", "pybench.cli.plan:ci", "Print a nightly workflow for a machine of your own."),
    Entry("expect", "pybench.cli.plan:expect", "Write an expected table from good runs of one host or several."),
    Entry("example", "pybench.cli.plan:example", "Unpack runs of two H200s, to try every command on."),
    Entry("schema", "pybench.cli.plan:schema", "Print the JSON Schema of suite files or of a command's JSON."),
    Entry("power", "pybench.power.command:power", "Measure power and energy of GPUs.", judges=True),
    Entry("compare", f"{_NIGHTLY}.command:compare", "Compare RUN with earlier runs, row by row.", judges=True),
    Entry("gate", f"{_NIGHTLY}.command:gate", "Judge RUN by the nights in DIR.", judges=True),
    Entry("history", f"{_NIGHTLY}.command:history", "Show how each row of a suite went over the runs in DIR."),
    Entry("explain", "pybench.explain.command:explain", "Split each shortfall of RUN's speedups into its causes."),
    Entry("judge", "pybench.explain.command:judge", "Judge kept results by today's tables.", judges=True),
    Entry("fleet", "pybench.fleet.command:fleet", "Find the slow node or link of a fleet.", judges=True),
    Entry("bundle", "pybench.evidence.command:bundle", "Write RUN's evidence to one file."),
    Entry("verify", "pybench.evidence.command:verify", "Work out a bundle or run again and list what does not hold."),
)  # fmt: skip

EXTENSIONS = {
    "ab": f"{_NIGHTLY}.run_several:run_ab",
    "aa": f"{_NIGHTLY}.run_several:run_again",
    "predictions": "pybench.explain.command:predictions_of_run",
    "rates": "pybench.explain.node:run_with_rates",
    "predicts": "pybench.explain.command:predicts_here",
    "explain values": "pybench.explain.values:Explanation",
    "fleet values": "pybench.fleet.values:FleetResult",
    "gate values": f"{_NIGHTLY}.values:GateResult",
    "history values": f"{_NIGHTLY}.history_text:SuiteHistory",
}
"""What products add to commands of the core, which call it through their context's ``obj``."""

_BY_NAME = {entry.name: entry for entry in COMMANDS}


class Commands(ErrorBoundary):
    """The group of :data:`COMMANDS`."""

    judging = frozenset(entry.name for entry in COMMANDS if entry.judges)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names in the order of the table."""
        return [*_BY_NAME]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; ``help`` is a word for ``--help``."""
        if cmd_name == "help":
            return click.Command("help", callback=lambda: echo(ctx.get_help()), add_help_option=False)
        if (entry := _BY_NAME.get(cmd_name)) is None:
            from pybench.files.toml_file import did_you_mean

            ctx.fail(f"No such command {cmd_name!r}{did_you_mean(cmd_name, _BY_NAME)}")
        return cast("click.Command", imported(entry.place))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write the table's lines of help, and import nothing."""
        width = formatter.width - 6 - max(map(len, _BY_NAME))
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, shorten(entry.help, width, placeholder="...")) for entry in COMMANDS])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands, and import none of them."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(entry.name, help=entry.help) for entry in COMMANDS if entry.name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def imported(place: str) -> Any:  # noqa: ANN401 - commands and functions of products
    """What ``place``, ``module:name``, names. Raises ``UsageError`` where its product was removed."""
    module, _, name = place.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise UsageError(f"this pybench was installed without {error.name}") from error


def _print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        echo(f"pybench, version {pybench.__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Show it.")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Prove that N GPUs give the speedup they should, at the energy they should."""
    # Records hold no cycles; looking for them takes a fifth of the time of a long run's report.
    gc.set_threshold(100_000)
    has_defaults = any(map(os.path.exists, ("pybench.toml", "pyproject.toml")))
    if ctx.invoked_subcommand in {"run", "plan"} and has_defaults:
        from pybench.cli.params import read_defaults

        ctx.default_map = dict.fromkeys(("run", "plan"), read_defaults(Path.cwd()))
    ctx.obj = lambda name: imported(EXTENSIONS[name])
