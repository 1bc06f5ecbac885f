"""``pybench fleet``: nodes compared with each other."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from pybench.cli.io import echo, terminal_options, write_json
from pybench.cli.params import FILE, NAMED_PATH, across_option, effects_of, smallest_option
from pybench.model.errors import UsageError


@click.group()
def fleet() -> None:
    """Find the slow node or link of a fleet."""


@fleet.command()
@click.argument("run_paths", metavar="[NODE=]RUN...", type=NAMED_PATH, nargs=-1, required=True)
@click.option("--nodes", metavar="NAME,...", default="", help="Nodes that are expected: one without a run is named.")
@across_option
@smallest_option
@click.option("--drain-list", is_flag=True, help="Print a line for scontrol for each bad node, and nothing else.")
@click.option("--json", "json_file", type=FILE, metavar="FILE", help="Write the result there, too.")
@click.pass_context
def check(
    ctx: click.Context,
    /,
    *,
    run_paths: tuple[str, ...],
    nodes: str,
    across: tuple[str, ...],
    smallest: tuple[str, ...],
    drain_list: bool,
    json_file: Path | None,
) -> None:
    """Judge nodes by their runs of node_check. Each RUN is a folder, a results.json, or a folder of those."""
    from pybench.core.keys import check_across
    from pybench.fleet import text as report
    from pybench.fleet.decision import judge_fleet
    from pybench.fleet.runs import read_fleet
    from pybench.fleet.values import EXIT_CODES

    collected = read_fleet(run_paths)
    collected.require_names()
    check_across(across, {name for run in collected.runs for name in run.figures.keys})
    result = judge_fleet(
        collected.runs,
        pairs=collected.pairs,
        expected=[name.strip() for name in nodes.split(",") if name.strip()],
        refused=collected.unreadable,
        across=across,
        effects=effects_of(smallest),
        notes=collected.notes,
    )
    if drain_list:
        for line in report.drain_list(result):
            echo(line)
    else:
        echo(report.render(result, (run.figures for run in collected.runs), **terminal_options()), nl=False)
    write_json(json_file, asdict(result))
    ctx.exit(EXIT_CODES[result.state])


@fleet.command()
@click.argument("names", metavar="NODE...", nargs=-1, required=True)
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds to print; default: 3, which decide.")
@click.option("--all", "every", is_flag=True, help="Print every round, until each node has met every other one.")
@click.option("--met", multiple=True, metavar="RUN", help="Leave out pairs that have met: their runs over two hosts.")
def pairs(names: tuple[str, ...], rounds: int | None, met: tuple[str, ...], *, every: bool) -> None:
    """Print which nodes to measure in pairs. All pairs of a round are measured at the same time."""
    from pybench.fleet.pairs import DECISION_ROUNDS, pair_rounds
    from pybench.fleet.runs import read_fleet

    if every and rounds is not None:
        raise UsageError("--all prints every round: leave out --rounds, or --all")
    every_round = pair_rounds(names, [figure.nodes for figure in read_fleet(met).pairs] if met else ())
    if not every_round:
        echo("every pair of these nodes has met", err=True)
    for number, of_round in enumerate(every_round if every else every_round[: rounds or DECISION_ROUNDS], 1):
        for first, second in of_round:
            echo(f"{number} {first} {second}")
