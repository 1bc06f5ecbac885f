"""The command line's effort in place of a suite's."""

from __future__ import annotations

from dataclasses import replace

from pybench.model.effort import Effort
from pybench.model.suite import Suite


def with_effort(suite: Suite, *, attempts: int | None = None, steps: int | None = None) -> Suite:
    """Measure every point with exactly so many attempts, and so many steps in each; ``None`` leaves the suite's own."""

    def changed(effort: Effort) -> Effort:
        if attempts is not None:
            effort = replace(effort, attempts=attempts, max_attempts=attempts)
        return effort if steps is None else replace(effort, steps=steps)

    return replace(suite, benchmarks=tuple(replace(b, effort=changed(b.effort)) for b in suite.benchmarks))
