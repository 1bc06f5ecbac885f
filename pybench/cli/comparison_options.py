"""Options of every command that compares runs: keys that may differ, and the smallest change that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pybench.model.change import SmallestEffects

across_option = click.option(
    "--across", multiple=True, metavar="KEY",
    help="A key in which the runs may differ: driver, kernel, software, a package, settings, ... Repeatable.",
)  # fmt: skip
smallest_option = click.option(
    "--smallest", multiple=True, metavar="[METRIC=]PERCENT",
    help="Smallest change that counts, of all metrics or of one; default: 1. Repeatable.",
)  # fmt: skip


def effects_of(smallest: tuple[str, ...]) -> SmallestEffects:
    """The smallest effects that a command line names: ``1.5`` or ``METRIC=3``, per cent. Raises ``UsageError``."""
    from pybench.model.change import SMALLEST_EFFECT, SmallestEffects
    from pybench.model.errors import UsageError
    from pybench.model.workloads.registry import METRICS

    default, by_metric = SMALLEST_EFFECT, {}
    for text in smallest:
        metric, _, number = text.rpartition("=")
        if metric and metric not in METRICS:
            raise UsageError(f"--smallest {text}: {metric} is no metric; docs/workloads.md lists them")
        try:
            fraction = float(number) / 100
        except ValueError:
            fraction = 0.0
        if not 0 < fraction < 1:
            raise UsageError(f"--smallest {text}: give per cent between 0 and 100, such as 1.5 or ttft_s=3")
        if metric:
            by_metric[metric] = fraction
        else:
            default = fraction
    return SmallestEffects(default=default, by_metric=by_metric)
