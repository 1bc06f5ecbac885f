"""The words ``all`` and ``installed`` on machines of any size."""

from __future__ import annotations

from typing import Any

import pytest

from pybench.core.plan import Required, expand, left_out_list, with_words
from pybench.files.shipped import load_models
from pybench.model.machine import Devices
from pybench.model.suite import AxisValue, Benchmark, Effort, Suite
from pybench.model.workloads.settings import WorkloadName
from tests.api import suite_of


def _suite(**axes: tuple[AxisValue, ...]) -> Suite:
    benchmark = Benchmark(name="b", workload="matmul", settings={"backend": "torch"}, axes=axes, effort=Effort())
    return suite_of(benchmark)


@pytest.mark.parametrize(
    ("num_devices", "max_gpus", "counts"),
    [
        (1, None, (2, 4)),
        (2, None, (2, 4)),
        (3, None, (2, 4, 3)),
        (4, None, (2, 4)),
        (8, None, (2, 4, 8)),
        (8, 3, (2, 4, 3)),
        (8, 16, (2, 4, 8)),
        (0, None, (2, 4)),
    ],
)
def test_all_is_what_the_run_may_use(num_devices: int, max_gpus: int | None, counts: tuple[int, ...]) -> None:
    """Once, after the written numbers; below the least number it adds nothing."""
    made = with_words(_suite(gpus=(2, 4, "all"), seed=(1, 2)), num_devices=num_devices, max_gpus=max_gpus)
    assert made.benchmarks[0].axes == {"gpus": counts, "seed": (1, 2)}


def test_all_are_those_of_each_node() -> None:
    """Two nodes of four GPUs have eight; other degrees take their part."""
    made = with_words(_suite(gpus=("all",), nodes=(2,)), num_devices=4)
    assert made.benchmarks[0].axes["gpus"] == (8,)
    training = Benchmark(
        name="b",
        workload="train",
        settings={"backend": "torch", "nodes": 2, "tensor_parallel": 4},
        axes={"data_parallel": ("all",)},
        effort=Effort(),
    )
    made = with_words(suite_of(training), num_devices=4)
    assert made.benchmarks[0].axes["data_parallel"] == (2,)


def test_an_axis_of_numbers_stays() -> None:
    """A point too large for the machine is skipped with a reason."""
    suite = _suite(gpus=(2, 4))
    assert with_words(suite, num_devices=1) == suite


@pytest.mark.parametrize(
    ("num_devices", "max_gpus", "measured", "named"),
    [
        (1, None, [1], ("2 GPUs (1 here)", "4 GPUs (1 here)")),
        (2, None, [1, 2], ("4 GPUs (2 here)",)),
        (3, None, [1, 2, 3], ("4 GPUs (3 here)",)),
        (4, 2, [1, 2], ("4 GPUs (--max-gpus 2)",)),
        (8, None, [1, 2, 4, 8], ()),
    ],
)
def test_a_count_above_what_is_there_is_named_once(
    num_devices: int, max_gpus: int | None, measured: list[int], named: tuple[str, ...]
) -> None:
    """With the word as without it, 4 is left out on two GPUs, whatever the other axes, and skips nothing."""
    written = _suite(gpus=(1, 2, 4, "all"), seed=(1, 2))
    suite = with_words(written, num_devices=num_devices, max_gpus=max_gpus)
    plan = expand(suite, {}, Devices("cuda", num_devices), max_gpus=max_gpus)
    assert [point.num_gpus for point in plan.points if point.axes["seed"] == 1] == measured
    assert left_out_list(plan) == named
    assert plan.skips == ()


def test_a_required_count_above_what_is_there_is_missing() -> None:
    """The word next to it changes nothing of that."""
    suite = with_words(_suite(gpus=(1, 4, "all")), num_devices=2)
    plan = expand(suite, {}, Devices("cuda", 2), required=Required(num_gpus=4))
    assert [skip.lacks for skip in plan.skips] == ["4 GPUs (2 here)"]


@pytest.mark.parametrize(("num_devices", "count"), [(0, 1), (1, 1), (6, 6)])
def test_the_word_alone(num_devices: int, count: int) -> None:
    """Without any device one is needed, and missed."""
    made = with_words(_suite(gpus=("all",)), num_devices=num_devices)
    assert made.benchmarks[0].axes == {"gpus": (count,)}


@pytest.mark.parametrize(
    ("num_devices", "degrees"), [(1, (1, 2, 4)), (2, (1, 2, 4)), (6, (1, 2, 4, 3)), (8, (1, 2, 4))]
)
def test_other_degrees_take_their_part(num_devices: int, degrees: tuple[int, ...]) -> None:
    """With two stages and one copy, half of the GPUs remain."""
    settings = {"backend": "torch", "model": "m", "pipeline_parallel": 2}
    axes: dict[str, tuple[AxisValue, ...]] = {"tensor_parallel": (1, 2, 4, "all"), "data_parallel": (1,)}
    benchmark = Benchmark(name="b", workload="generate", settings=settings, axes=axes, effort=Effort())
    made = with_words(suite_of(benchmark), num_devices=num_devices)
    assert made.benchmarks[0].axes == {"tensor_parallel": degrees, "data_parallel": (1,)}


@pytest.mark.parametrize(
    ("workload", "some", "none"),
    [("generate", {"torch", "transformers"}, set()), ("train", {"torch"}, {"transformers", "tensorrt_llm"})],
)
def test_installed_is_every_backend_with_the_workload(workload: str, some: set[str], none: set[str]) -> None:
    """Written values stay first; the plan leaves out values that the machine lacks."""
    axes: dict[str, tuple[AxisValue, ...]] = {"backend": ("vllm", "installed")}
    benchmark = Benchmark(name="b", workload=workload, settings={}, axes=axes, effort=Effort())
    (made,) = with_words(suite_of(benchmark), num_devices=1).benchmarks
    first, *implied = made.axes["backend"]
    assert first == "vllm"
    assert some <= set(implied)
    assert not {"vllm", *none} & set(implied)
    assert made.implied == {"backend": tuple(implied)}


@pytest.mark.parametrize(("written", "skipped", "left_out"), [("all", [], [6]), (6, [6], [])])
def test_a_count_that_does_not_divide_is_left_out_where_a_word_stands_for_it(
    written: AxisValue, skipped: list[int], left_out: list[int]
) -> None:
    """Llama-3.1-8B has 32 heads: a node of 6 GPUs is healthy, a suite that asks for 6 is wrong."""
    axes: dict[str, tuple[AxisValue, ...]] = {"tensor_parallel": (1, 2, 4, written)}
    settings = {"backend": "torch", "model": "llama-3.1-8b", "batch_size": 1, "prompt_tokens": 1, "output_tokens": 2}
    benchmark = Benchmark(name="b", workload="generate", settings=settings, axes=axes, effort=Effort())
    suite = with_words(suite_of(benchmark), num_devices=6)
    plan = expand(suite, load_models(), Devices("cuda", 6))
    assert [point.num_gpus for point in plan.points] == [1, 2, 4]
    assert [skip.num_gpus for skip in plan.skips] == skipped
    assert [skip.num_gpus for skip in plan.left_out] == left_out


def _rest(**axes: tuple[AxisValue, ...]) -> Suite:
    settings = {"backend": "vllm", "model": "llama-3.1-8b", "prompt_tokens": 8, "output_tokens": 8, "batch_size": 24}
    benchmark = Benchmark(
        name="b", workload="generate", settings={**settings, "data_parallel": "rest"}, axes=axes, effort=Effort()
    )
    return suite_of(benchmark)


@pytest.mark.parametrize(
    ("num_devices", "max_gpus", "found", "left_out"),
    [
        (8, None, {1: 8, 2: 4, 4: 2}, ()),
        (6, None, {1: 6, 2: 3, 4: 1}, ()),
        (3, None, {1: 3, 2: 1}, ("4 GPUs (3 here)",)),
        (8, 6, {1: 6, 2: 3, 4: 1}, ()),
    ],
)
def test_the_rest_is_what_the_other_degrees_of_a_point_leave(
    num_devices: int, max_gpus: int | None, found: dict[int, int], left_out: tuple[str, ...]
) -> None:
    """Rounded down, in the point's name and its settings: 6 GPUs are 3 copies of 2, and 1 of 4."""
    suite = with_words(_rest(tensor_parallel=(1, 2, 4)), num_devices=num_devices, max_gpus=max_gpus)
    plan = expand(suite, load_models(), Devices("cuda", num_devices), max_gpus=max_gpus)
    assert [point.id for point in plan.points] == [
        f"b[tensor_parallel={degree},data_parallel={copies}]" for degree, copies in found.items()
    ]
    assert [point.num_gpus for point in plan.points] == [degree * copies for degree, copies in found.items()]
    assert left_out_list(plan) == left_out


def test_a_rest_that_cannot_run_is_left_out() -> None:
    """The word stands for it, nobody wrote it: 24 sequences are not shared by 5 copies."""
    plan = expand(_rest(), load_models(), Devices("cuda", 5))
    assert (plan.points, plan.skips) == ((), ())
    assert "5" in plan.left_out[0].reason


def _rounded(workload: WorkloadName, settings: dict[str, Any], **axes: tuple[AxisValue, ...]) -> Benchmark:
    return Benchmark(name="b", workload=workload, settings=settings, axes=axes, effort=Effort(), round_up_batch=True)


@pytest.mark.parametrize(
    ("num_devices", "batch"), [(1, 8), (2, 8), (3, 9), (4, 8), (5, 10), (6, 12), (7, 14), (8, 8), (16, 16)]
)
def test_a_batch_is_rounded_up_to_fill_the_gpus(num_devices: int, batch: int) -> None:
    """The plan names what it changed; a batch that divides stays, and so do its points."""
    written = _rounded("train", {"backend": "torch", "global_batch_size": 8}, data_parallel=("all",))
    suite = suite_of(written)
    (made,) = with_words(suite, num_devices=num_devices).benchmarks
    assert made.settings["global_batch_size"] == batch
    assert made.implied.get("global_batch_size") == (None if batch == 8 else (batch,))
    (limited,) = with_words(suite, num_devices=8, max_gpus=num_devices).benchmarks
    assert limited.settings["global_batch_size"] == (8 if num_devices > 8 else batch)


@pytest.mark.parametrize(("num_devices", "batch"), [(1, 16), (2, 16), (3, 24), (4, 16), (5, 40), (6, 24), (8, 16)])
def test_every_count_of_an_axis_divides_the_batch(num_devices: int, batch: int) -> None:
    """In whole passes of two samples, 5 GPUs with 1, 2 and 4 take 40."""
    passes = {"backend": "torch", "global_batch_size": 16, "batch_size_per_gpu": 2, "grad_accum": "auto"}
    suite = Suite(name="s", description="", benchmarks=(_rounded("train", passes, data_parallel=(1, 2, 4, "all")),))
    assert with_words(suite, num_devices=num_devices).benchmarks[0].settings["global_batch_size"] == batch
    fixed = {"backend": "torch", "global_batch_size": 16, "grad_accum": 4}
    suite = Suite(name="s", description="", benchmarks=(_rounded("train", fixed, data_parallel=("all",)),))
    assert with_words(suite, num_devices=3).benchmarks[0].settings["global_batch_size"] == 24
    prompts = _rounded("generate", {"batch_size": 1024}, backend=("vllm",), data_parallel=(1, 2, 4, "all"))
    suite = suite_of(prompts)
    assert with_words(suite, num_devices=3).benchmarks[0].settings["batch_size"] == 1026
