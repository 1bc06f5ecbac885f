"""What a verification of a run found: what does not hold, what is not there yet, and what could not be checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

DiscrepancyState = Literal["does not hold", "unfinished", "not checked"]
"""``unfinished`` is what a run that claims no verdict still owes."""


@dataclass(frozen=True, kw_only=True)
class Discrepancy:
    """One thing that does not hold, is not there yet, or could not be checked.

    ``place`` is the file, attempt or point it concerns.
    """

    place: str
    text: str
    state: DiscrepancyState = "does not hold"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Of one run. ``checked`` counts what was held against something else, by its name in the plural.

    ``other_version`` of pybench made the run, where it is not this one.
    """

    run_id: str
    discrepancies: tuple[Discrepancy, ...]
    checked: dict[str, int] = field(default_factory=dict)
    verdict: str | None = None
    signature: str | None = None
    other_version: str | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing was found that does not hold."""
        return all(found.state != "does not hold" for found in self.discrepancies)

    @property
    def unfinished(self) -> bool:
        """Whether the run still owes something."""
        return any(found.state == "unfinished" for found in self.discrepancies)

    @property
    def complete(self) -> bool:
        """Whether everything was there and could be checked."""
        return all(found.state == "does not hold" for found in self.discrepancies)
