"""Points that a run has as lacking packages, planned again by the packages of the Python that it recorded."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from pybench.core.plan.required import parse_required
from pybench.evidence.plan import is_lacking_packages
from pybench.model.manifest import Manifest
from pybench.model.suite import Plan
from pybench.run.engines.local import Local
from pybench.run.suite_plan import with_packages

# As planning words them: backend transformers needs torch and accelerate, not found here: the remedy.
_ABSENT = re.compile(r" needs ([\w-]+(?: and [\w-]+)*), not found here: ")


@dataclass(frozen=True)
class _RecordedPython(Local):
    """One that lacks ``absent``, by the names that are imported."""

    absent: frozenset[str] = frozenset()

    def missing(self, packages: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in packages if name in self.absent)


def without_packages(manifest: Manifest, plan: Plan) -> Plan:
    """``plan`` less the points for which the run's own plan names packages that its Python lacks, as planned without.

    A point that the run measured shows its packages by itself: they may be there without a record. Of an image, which
    brings its own, and of a Python that is not recorded nothing is known to be absent.
    """
    if manifest.software is None or manifest.container is not None:
        return plan
    entries = [skip for skip in (*manifest.plan.skips, *manifest.plan.left_out) if is_lacking_packages(skip)]
    named = {name for skip in entries for found in _ABSENT.finditer(skip.reason) for name in found[1].split(" and ")}
    ids = {skip.id for skip in entries}
    lacking = with_packages(
        Plan(points=tuple(point for point in plan.points if point.id in ids), skips=()),
        _RecordedPython(absent=_absent(named, manifest.software.packages)),
        parse_required(manifest.options.require),
        {benchmark.name for benchmark in manifest.suite.benchmarks if benchmark.required},
    )
    moved = {skip.id for skip in (*lacking.skips, *lacking.left_out)}
    return replace(
        plan,
        points=tuple(point for point in plan.points if point.id not in moved),
        skips=(*plan.skips, *lacking.skips),
        left_out=(*plan.left_out, *lacking.left_out),
    )


def _absent(names: Collection[str], recorded: Collection[str]) -> frozenset[str]:
    """Those of ``names`` that are not recorded, under the names that registries have them by."""
    return frozenset(name for name in names if name.replace("_", "-") not in recorded)
