"""Which points one process measures."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from pybench.core.schedule import next_session, session_key, sessions
from pybench.model.backend import BACKENDS
from pybench.model.suite import Effort, Point
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.node import Burn, Collective, Matmul
from pybench.model.workloads.registry import AnySettings
from pybench.model.workloads.settings import BackendName
from pybench.model.workloads.train import Train
from pybench.worker.backends.tensorrt_llm import translation as tensorrt_llm
from pybench.worker.backends.vllm import translation as vllm
from tests.core.schedule.test_attempts import record

SIZES: dict[str, Any] = {"batch_size": 4, "prompt_tokens": 6, "output_tokens": 5}
ENGINES: dict[BackendName, Any] = {"vllm": vllm.engine_arguments, "tensorrt_llm": tensorrt_llm.engine_arguments}


def generate(backend: BackendName, **more: Any) -> Generate:
    return Generate(**{"backend": backend, "model": "m", **SIZES, **more})


def point(settings: AnySettings, name: str = "p", attempts: int = 1, *, share_process: bool = True) -> Point:
    return Point(
        id=name,
        benchmark="b",
        axes={},
        settings=settings,
        effort=Effort(attempts=attempts, share_process=share_process),
        architecture=None,
    )


def shared(one: AnySettings, other: AnySettings) -> bool:
    key = session_key(point(one))
    return key is not None and key == session_key(point(other))


@pytest.mark.parametrize(
    ("backend", "more", "same"),
    [
        ("vllm", {"batch_size": 8}, True),
        ("vllm", {"prompt_tokens": 7, "output_tokens": 4}, True),  # as long together
        ("vllm", {"prompt_tokens": 7}, False),  # max_model_len
        ("vllm", {"max_context_tokens": 9}, False),
        ("vllm", {"concurrency": 2}, False),  # another kind of engine
        ("vllm", {"max_num_seqs": 2}, False),
        ("vllm", {"engine_args": {"block_size": 16}}, False),
        ("vllm", {"tensor_parallel": 2}, False),
        ("vllm", {"seed": 1}, False),
        ("tensorrt_llm", {"concurrency": 2}, True),
        ("tensorrt_llm", {"output_tokens": 50}, False),
        ("torch", {"batch_size": 8, "prompt_tokens": 9, "output_tokens": 2}, True),
        ("torch", {"dtype": "float32"}, False),
        ("transformers", {"batch_size": 8}, True),
        ("transformers", {"device_map": "sequential"}, False),
    ],
)
def test_an_engine_is_shared_by_its_arguments(backend: BackendName, more: dict[str, Any], same: bool) -> None:
    """Settings of a point may differ, settings of the process may not."""
    assert shared(generate(backend), generate(backend, **more)) == same


def test_rates_and_concurrency_may_differ_within_one_kind_of_load() -> None:
    """Both go to the asynchronous engine."""
    assert shared(generate("vllm", concurrency=2), generate("vllm", concurrency=4))
    assert shared(generate("vllm", concurrency=2), generate("vllm", request_rate_per_s=3.0))


def other_value(name: str, hint: Any, value: Any) -> Any:
    """A valid value of a setting that is not ``value``."""
    kinds = get_args(get_args(hint)[0]) or (get_args(hint)[0],)
    words = [word for kind in kinds for word in get_args(kind) or (kind,) if isinstance(word, str) and word != value]
    if words:
        return words[0]
    if name == "engine_args":
        return {"block_size": 16}
    if isinstance(value, bool):
        return not value
    return f"other {value}" if isinstance(value, str) else 0.5 if isinstance(value, float) else (value or 2) + 1


@pytest.mark.parametrize("backend", ENGINES)
def test_no_setting_reaches_an_engine_unseen(backend: BackendName) -> None:
    """Whatever single setting differs: points of one key give the engine equal arguments, one and all."""
    one = generate(backend)
    hints = get_type_hints(Generate, include_extras=True)
    names = [field.name for field in dataclasses.fields(Generate) if field.name not in {"workload", "backend"}]
    kept = []
    for name in names:
        other = dataclasses.replace(one, **{name: other_value(name, hints[name], getattr(one, name))})
        assert other != one, name
        if shared(one, other):
            kept.append(name)
            assert ENGINES[backend](one, Path("f")) == ENGINES[backend](other, Path("f")), name
            assert tensorrt_llm.cache_arguments(one) == tensorrt_llm.cache_arguments(other), name
    assert "batch_size" in kept


def test_what_measures_a_node_needs_its_ranks_only() -> None:
    """Of different workloads, too."""
    assert shared(Matmul(backend="torch", gpus=2), Collective(backend="torch", gpus=2))
    assert not shared(Matmul(backend="torch", gpus=2), Matmul(backend="torch", gpus=4))
    assert not shared(Matmul(backend="torch"), Matmul(backend="torch", environment="NCCL_ALGO=Ring"))
    assert shared(Matmul(backend="torch"), Burn(backend="torch"))


def test_training_and_evaluation_never_share() -> None:
    """Optimizers and batches found by trying leave their memory behind."""
    train = Train(backend="torch", model="m", global_batch_size=1, sequence_tokens=1)
    assert session_key(point(train)) is None
    assert session_key(point(Evaluate(backend="torch", model="m", method="loss", **SIZES))) is None


def test_a_benchmark_may_keep_to_itself() -> None:
    """Its points share with none."""
    assert session_key(point(generate("vllm"), share_process=False)) is None


def test_traits_name_settings_that_are_there() -> None:
    """A slip in a name would keep points apart, or together, unseen."""
    for backend, traits in BACKENDS.items():
        for workload, names in traits.warm_settings.items():
            assert workload == "generate"
            settings = generate(backend)
            assert all(hasattr(settings, name) for name in (*names, *traits.shaping))


def ids(session: tuple[tuple[Point, int], ...]) -> str:
    return " ".join(f"{one.id}{number}" for one, number in session)


def test_a_round_is_cut_where_the_engine_changes() -> None:
    """And two attempts at one point are never in one process, also where rounds meet."""
    a, b = (point(generate("vllm", batch_size=size), name, attempts=2) for size, name in ((1, "a"), (2, "b")))
    c = point(generate("vllm", tensor_parallel=2), "c", attempts=2)
    assert [ids(session) for session in sessions((a, b, c))] == ["a1 b1", "c1", "c2", "b2 a2"]
    assert [ids(session) for session in sessions((a, b))] == ["a1 b1", "b2 a2"]
    assert list(sessions(())) == []


def test_a_point_that_failed_warm_is_alone_from_then_on() -> None:
    """First or behind another."""
    a, b, c = (point(generate("vllm", batch_size=size), name) for size, name in ((1, "a"), (2, "b"), (3, "c")))
    failed = (dataclasses.replace(record("b", 1, "exception"), warm_after=("a",)),)
    assert ids(next_session(((a, 2), (b, 2), (c, 2)), failed)) == "a2"
    assert ids(next_session(((b, 2), (c, 2)), failed)) == "b2"
    assert ids(next_session(((a, 2), (c, 2), (b, 2)), failed)) == "a2 c2"
