"""The outcome of a verification: claims that do not hold, are unfinished, or could not be checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

DiscrepancyState = Literal["does not hold", "unfinished", "not checked"]
"""``unfinished``: attempts that a run without a verdict still owes."""

DiscrepancyKind = Literal[
    "digest",  # the digest of a file in a bundle is another
    "signature",  # nobody trusted signed the bundle
    "unreadable",  # a file is absent, damaged or malformed
    "worker",  # the digest of the worker's source is another
    "machine",  # kind or fingerprint contradict the listed GPUs
    "suite",  # the suite or a table differs from the trusted one
    "plan",  # a point differs from the expanded suite
    "order",  # attempts overlap in time
    "results",  # a value of results.json contradicts the journal
    "owed",  # an attempt has no record
    "joules",  # joules or GPU states contradict the power trace
    "sensor",  # joules use the sender's sensor model
    "build",  # another build of pybench made the run
]


@dataclass(frozen=True)
class Discrepancy:
    """One thing that does not hold, is not there yet, or can't be checked. ``place`` is a file, attempt or point."""

    kind: DiscrepancyKind
    place: str
    text: str
    state: DiscrepancyState = "does not hold"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Of one run. ``checked`` counts what was recomputed, by its name in the plural.

    ``other_build`` is the build of pybench that made the run, ``None`` where this one did.
    """

    run_id: str
    discrepancies: tuple[Discrepancy, ...]
    checked: dict[str, int] = field(default_factory=dict)
    verdict: str | None = None
    signature: str | None = None
    other_build: str | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts the run's claims."""
        return all(discrepancy.state != "does not hold" for discrepancy in self.discrepancies)

    @property
    def unfinished(self) -> bool:
        """Whether the run still owes something."""
        return any(discrepancy.state == "unfinished" for discrepancy in self.discrepancies)

    @property
    def complete(self) -> bool:
        """Whether everything was there and could be checked. Another build alone leaves nothing open."""
        return all(d.state == "does not hold" or d.kind == "build" for d in self.discrepancies)
