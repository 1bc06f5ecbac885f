"""Whether points that train the same show the same loss: a wrong but fast strategy must not pass.

Points of a run train the same when model, data, optimizer and effective batch are equal. The baseline is the first of
them with the fewest GPUs. In each of the first steps a loss may differ from the baseline's by a small part of the
distance that the baseline's loss moved. Agreement shows nothing where the loss moved less than rounding.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pybench.core.measurements import Measurements, grouped
from pybench.model.results import CheckResult, Estimate
from pybench.model.suite import Point
from pybench.model.verdict import Verdict
from pybench.model.workloads.train import Train

METRIC = "loss_deviation"
NUM_STEPS = 5
# Relative to how far the baseline's loss moved, and never to more than its first loss. float32: sums in another order,
# through five updates. 16-bit types round each update to 3 digits. Copies that learn alone are off by 4 to 59 %.
TOLERANCES = {"float32": 1e-3, "bfloat16": 2e-2, "float16": 2e-2}
# Relative to the first loss: what rounding alone sets apart, 2e-7 in float32 on CPUs, 1e-4 in bfloat16 on H200s.
NOISE = {"float32": 1e-6, "bfloat16": 2e-4, "float16": 2e-4}
_SAME = ("model", "dtype", "mixed_precision", "seed", "sequence_tokens", "learning_rate", "max_grad_norm")
_SAME_ADAPTERS = ("lora_rank", "lora_alpha", "lora_targets", "weights")
_VERDICTS: tuple[Verdict, ...] = ("pass", "inconclusive", "fail")


def loss_checks(measurements: Measurements) -> tuple[CheckResult, ...]:
    """One row for every measured training point that has a baseline."""
    points = measurements.plan.points
    groups = grouped((key, (point, curve)) for point in points for key, curve in _curves(point, measurements))
    rows: dict[str, CheckResult] = {}

    def severity(row: CheckResult) -> tuple[int, float]:
        return _VERDICTS.index(row.verdict), row.value.value if row.value else 0.0

    for members in groups.values():
        baseline = min(members, key=lambda member: member[0].num_gpus)
        for point, curve in members:
            if point.id != baseline[0].id:
                row = _check(point, curve, *baseline)
                rows[point.id] = max((rows.get(point.id, row), row), key=severity)
    return tuple(rows[point.id] for point in points if point.id in rows)


def _curves(point: Point, measurements: Measurements) -> list[tuple[tuple[object, ...], tuple[float, ...]]]:
    """The first losses of each good attempt by the settings that determine them; dropout makes them random."""
    settings = point.settings
    if not isinstance(settings, Train) or settings.lora_dropout:
        return []
    equal = (getattr(settings, name) for name in (*_SAME, *_SAME_ADAPTERS))
    # Ranks that quantise gradients by a config make another update.
    update = (settings.optimizer or "adamw", json.dumps(settings.deepspeed_config, sort_keys=True))
    same = (*equal, *update)
    good = [record for record in measurements.good(point.id) if record.ranks[0].losses]
    return [((*same, record.ranks[0].steps[0].work.samples), record.ranks[0].losses[:NUM_STEPS]) for record in good]


def _check(point: Point, curve: Sequence[float], baseline: Point, expected: Sequence[float]) -> CheckResult:
    assert isinstance(point.settings, Train)
    assert isinstance(baseline.settings, Train)
    computed = max((each.computing_dtype for each in (point.settings, baseline.settings)), key=TOLERANCES.__getitem__)
    pairs = list(zip(curve, expected, strict=False))
    deviation, step = max((abs(loss - wanted) / expected[0], step) for step, (loss, wanted) in enumerate(pairs))
    moved = max(abs(wanted - expected[0]) for _, wanted in pairs) / expected[0]
    limit = max(NOISE[computed], TOLERANCES[computed] * min(moved, 1.0))
    needed = NOISE[computed] / TOLERANCES[computed]
    verdict: Verdict = "fail" if deviation > limit else "inconclusive" if moved < needed else "pass"
    shown = f"it moved by {moved:.1g} of the first in these steps, and {needed:g} would show another training"
    reasons = {"fail": ": it does not compute the same", "inconclusive": f"; {shown}: set a larger learning_rate"}
    losses = f"loss {curve[step]:.5g} at step {step}, {expected[step]:.5g} at {baseline.id}"
    return CheckResult(
        benchmark=point.benchmark,
        metric=METRIC,
        point_id=point.id,
        value=Estimate(value=deviation, low=None, high=None, unit=""),
        minimum=None,
        maximum=limit,
        verdict=verdict,
        reason=losses + reasons.get(verdict, ""),
    )
