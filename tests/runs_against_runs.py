"""Figures of runs, with values that are easy to compute by hand."""

from __future__ import annotations

import math
import random
from typing import Any

from pybench.model.figures import PointFigures, RunFigures

KEYS = {"gpu": '["NVIDIA H200 GPU-0"]', "driver": '"580.1"', "torch": "2.11.0", "image": "[]", "suite": "s"}


def point(name: str = "decode", **changed: Any) -> PointFigures:
    """A point that was measured in three attempts, 1 % apart."""
    values: dict[str, Any] = {
        "id": name,
        "benchmark": "decode",
        "axes": {},
        "num_gpus": 1,
        "digest": "d",
        "settings": {"model": "m", "batch_size": 4},
        "medians": {"output_tokens_per_s": (100.0, 101.0, 99.0)},
    }
    return PointFigures(**{**values, **changed})


def run(*points: PointFigures, run_id: str = "now", **changed: Any) -> RunFigures:
    """A run of them on one machine; ``changed`` are fields, or keys where there is no such field (``None``: absent)."""
    fields = {name: changed.pop(name) for name in ("created_utc", "verdict", "suite") if name in changed}
    values = {"created_utc": "2026-11-22T00:00:00+00:00", "verdict": "no_expectation", "suite": "s", **fields}
    keys = {name: key for name, key in {**KEYS, "suite": values["suite"], **changed}.items() if key is not None}
    return RunFigures(run_id=run_id, keys=keys, points=points, **values)


def scaled(factor: float, medians: tuple[float, ...] = (100.0, 101.0, 99.0)) -> dict[str, tuple[float, ...]]:
    """A throughput so many times as high."""
    return {"output_tokens_per_s": tuple(factor * value for value in medians)}


def nights(num: int) -> tuple[RunFigures, ...]:
    """0.5 % between nights, from a fixed seed."""
    random_ = random.Random(1)
    return tuple(
        run(
            *(
                point(
                    f"decode[tensor_parallel={degree}]",
                    axes={"tensor_parallel": degree},
                    medians={
                        **scaled(degree * math.exp(random_.gauss(0, 0.005))),
                        "energy_j_per_output_token": (0.16 * math.exp(random_.gauss(0, 0.005)),),
                    },
                )
                for degree in (1, 2)
            ),
            run_id=f"run {day}",
            created_utc=f"2026-10-{day:02}T03:00:00+00:00",
        )
        for day in range(1, num + 1)
    )
