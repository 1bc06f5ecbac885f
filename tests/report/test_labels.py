"""Short names of points."""

from __future__ import annotations

from dataclasses import replace

from pybench.model.results import PointResult, Results
from pybench.model.suite import AxisValue
from pybench.report.text.labels import axis_text, common_axes, labels


def _point(results: Results, benchmark: str, **axes: AxisValue) -> PointResult:
    names = ",".join(f"{name}={value}" for name, value in axes.items())
    return replace(results.points[0], id=f"{benchmark}[{names}]", benchmark=benchmark, axes=axes)


def test_only_what_varies_within_a_benchmark_is_named(results: Results) -> None:
    """Another benchmark's values don't count, and a point without siblings is its benchmark."""
    one = _point(results, "decode", backend="torch", tensor_parallel=1)
    two = _point(results, "decode", backend="torch", tensor_parallel=2)
    other = _point(results, "train", backend="vllm", data_parallel=1)
    assert labels((one, two, other)) == {
        one.id: "decode[tensor_parallel=1]",
        two.id: "decode[tensor_parallel=2]",
        other.id: "train",
    }
    assert common_axes((one, two, other)) == ("decode[backend=torch]", "train[backend=vllm,data_parallel=1]")
    assert common_axes(()) == ()
    assert [axis_text("environment", value) for value in ("", "NCCL_ALGO=Ring")] == ["no environment", "NCCL_ALGO=Ring"]
    assert axis_text("concurrency", 8) == "8 at a time"
    assert axis_text("request_rate_per_s", 8.0) == "8 requests/s"
