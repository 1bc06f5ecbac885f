"""What a verification of a run found: all that does not hold, and all that could not be checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

DiscrepancyState = Literal["does not hold", "not checked"]


@dataclass(frozen=True, kw_only=True)
class Discrepancy:
    """One thing that does not hold, or could not be checked. ``place`` is the file, attempt or point it concerns."""

    place: str
    text: str
    state: DiscrepancyState = "does not hold"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Of one run. ``checked`` counts what was held against something else, by its name in the plural."""

    run_id: str
    discrepancies: tuple[Discrepancy, ...]
    checked: dict[str, int] = field(default_factory=dict)
    verdict: str | None = None
    signature: str | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing was found that does not hold."""
        return all(found.state == "not checked" for found in self.discrepancies)

    @property
    def complete(self) -> bool:
        """Whether everything could be checked."""
        return all(found.state == "does not hold" for found in self.discrepancies)
