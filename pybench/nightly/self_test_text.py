"""What the gate can do on this machine, for the terminal."""

from __future__ import annotations

import io

from rich.text import Text

from pybench.core.numbers import short_percent
from pybench.model.workloads.registry import METRICS
from pybench.nightly.baseline import MIN_NIGHTS
from pybench.nightly.self_test import Detectable, SelfTest
from pybench.report.table import Table, printable
from pybench.report.text.table import console, draw, hanging, without_trailing_spaces

_HEADS = ("metric", "rows", "spread", "one night finds", "in its noisiest row")
# A row this much noisier than the middle one is named.
_MUCH = 2


def render(found: SelfTest | None, suite: str, *, since: str = "", width: int = 80, color: bool = False) -> str:
    """Draw it; of ``None``, what is missing. ``since`` is the date of the last accepted change, if any."""
    stream = io.StringIO()
    out = console(stream, width, color=color)
    if found is None:
        after = f" since the change accepted from {since} on" if since else ""
        hanging(out, printable(f"{suite}: too few quiet nights{after}; {MIN_NIGHTS + 1} or more are needed"))
        hanging(out, "next: pybench run SUITE --aa 10, or wait for more nights")
        return without_trailing_spaces(stream.getvalue())
    out.print(
        Text(printable(f"{suite}: {found.num_false} of {found.num_judged} judgements are false alarms"), style="bold")
    )
    hanging(
        out,
        f"{found.num_quiet} quiet nights, each judged by the others in {found.num_judged // found.num_quiet} orders",
    )
    if since:
        hanging(out, printable(f"nights before {since} are left out: a change is accepted from then on"))
    hanging(
        out, f"as they came: {len(found.alarms)} of {found.num_as_came} nights had an alarm, a change or a false one"
    )
    for run_id in found.alarms:
        hanging(out, f"  {run_id}")
    hanging(out, f"a rate below 1 in {found.num_quiet} can't be seen from so few nights; reruns clear some alarms")
    out.print()
    table = Table("Changes for the worse that are found with 95 % power", _HEADS, tuple(map(_cells, found.metrics)))
    out.print(draw(table, width))
    for one in found.metrics:
        if one.worst_fraction > _MUCH * one.found_fraction:
            hanging(out, printable(f"noisiest row of {one.metric}: {one.noisiest}"))
    return without_trailing_spaces(stream.getvalue())


def _cells(one: Detectable) -> tuple[str, ...]:
    """A change for the worse is one down where more is better, else one up."""
    sign = "-" if METRICS[one.metric].higher_is_better else "+"
    found, worst = (sign + short_percent(fraction) for fraction in (one.found_fraction, one.worst_fraction))
    return one.metric, str(one.num_rows), short_percent(one.spread_fraction), found, worst
