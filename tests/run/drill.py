"""A suite of two points, and the table that judges it, for runs of the fake worker."""

from __future__ import annotations

from tests.builders import decode_benchmark

_SUITE = """
schema = 1
name = "drill"
description = "two points of a fake worker"

{decode}max_attempts = {max_attempts}
time_limit_s = {time_limit_s}

[benchmark.axes]
tensor_parallel = [1, 2]

[[benchmark.expect]]
metric = "output_tokens_per_s"
scaling = "strong"
along = "tensor_parallel"
table = "drill"
"""
_TABLE = """
schema = 1
name = "drill"
description = "what the fake worker reaches"

[[row]]
machine = "any"
fabric = "any"
backend = "any"
workload = "generate"
model_class = "any"
metric = "output_tokens_per_s"
count = 2
baseline_count = 1
value = {value}
tolerance = 0.1
kind = "measured"
source = "tests/run/fake_worker.py"
"""


def suite_text(*, max_attempts: int, time_limit_s: int) -> str:
    """Two attempts for each point, more while undecided."""
    decode = decode_benchmark(prompt_tokens=1, output_tokens=2, attempts=2, steps=3)
    return _SUITE.format(decode=decode, max_attempts=max_attempts, time_limit_s=time_limit_s)


def table_text(value: float = 2.0) -> str:
    """Expects a speedup of ``value`` from the second rank; the fake worker reaches 2."""
    return _TABLE.format(value=value)
