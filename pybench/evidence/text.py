"""Text of a verification: the verdict first, then each discrepancy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from pybench.core.measurements import grouped
from pybench.evidence.values import Discrepancy, DiscrepancyState, Verification
from pybench.model.text import plural
from pybench.report.table import printable, wrapped

_MOST_PARAGRAPHS = 40
_MOST_PLACES = 4
_MOST_NAMED = 3


def render(verification: Verification, *, width: int = 80) -> str:
    """At most 40 paragraphs for each kind of discrepancy."""
    lines = [*_headline(verification), ""]
    for state in get_args(DiscrepancyState):
        if of_state := [each for each in verification.discrepancies if each.state == state]:
            lines += [f"{state.capitalize()} ({len(of_state)})", *_listed(of_state), ""]
    drawn = [part for line in lines for part in wrapped(line, width, after="    " * line.startswith("  "))]
    return "\n".join(drawn).rstrip("\n") + "\n"


def _headline(verification: Verification) -> list[str]:
    items = verification.checked.items()
    counts = ", ".join(f"{count:,} {name.removesuffix('s') if count == 1 else name}" for name, count in items)
    run = printable(verification.run_id)
    if not verification.holds:
        faults = [each for each in verification.discrepancies if each.state == "does not hold"]
        places = list(dict.fromkeys(each.place.split(":")[0] for each in faults))
        listed = ", ".join(map(printable, places[:_MOST_NAMED]))
        more = f" and {plural(len(places) - _MOST_NAMED, 'more place')}" if len(places) > _MOST_NAMED else ""
        remedy = "Do not rely on this run's figures; get its folder again."
        return [f"DOES NOT HOLD  {run}", f"{len(faults)} in {listed}{more}. {remedy}"]
    if verification.unfinished:
        head = [f"UNFINISHED  {run}", "What was recorded holds; finish the run with: pybench run --resume RUN"]
    elif not verification.complete:
        head = [f"NOT FULLY CHECKED  {run}", "What could be checked holds."]
    else:
        head = [f"HOLDS  {run}", "Every figure and verdict follows from the journal and the power traces."]
    head += [f"Checked: {counts}."] if counts else []
    head += [f"The run's own verdict: {verification.verdict.replace('_', ' ')}."] if verification.verdict else []
    return head + ([f"Signature: {printable(verification.signature)}"] if verification.signature else [])


def _listed(discrepancies: Sequence[Discrepancy]) -> list[str]:
    """A paragraph for each; many places of one text share theirs."""
    paragraphs = []
    for text, places in grouped((each.text, each.place) for each in discrepancies).items():
        if len(places) > _MOST_PLACES:
            listed = "; ".join(map(printable, places[:_MOST_PLACES]))
            more = f"; and {len(places) - _MOST_PLACES} more (--json FILE has all)"
            paragraphs.append(f"{len(places)} places: {printable(text)}: {listed}{more}")
        else:
            paragraphs += [f"{printable(place)}: {printable(text)}" for place in places]
    lines = [f"  {paragraph}" for paragraph in paragraphs[:_MOST_PARAGRAPHS]]
    if len(paragraphs) > _MOST_PARAGRAPHS:
        lines.append(f"  and {len(paragraphs) - _MOST_PARAGRAPHS} more; --json FILE has all")
    return lines
