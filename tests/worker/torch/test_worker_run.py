"""The staged worker, run as the launcher runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pybench.model.wire import Failure, Header, Metric, Result, Step
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.train import Train
from tests.worker.conftest import steps_of

pytest.importorskip("transformers")


@pytest.mark.parametrize("ranks", [1, 2])
def test_generate_reports_every_token(
    run_cold_worker: Any, run_worker: Any, architecture: dict[str, Any], ranks: int
) -> None:
    """Both ranks tell of the whole batch: 3 sequences of 5 prompt and 4 output tokens. Two ranks import all of it."""
    run = run_cold_worker if ranks == 2 else run_worker
    settings = Generate(
        backend="torch",
        model="tiny",
        dtype="float32",
        tensor_parallel=ranks,
        batch_size=3,
        prompt_tokens=5,
        output_tokens=4,
    )
    code, streams, log = run(settings, architecture, ranks)
    assert (code, len(streams)) == (0, ranks), log
    for rank, events in enumerate(streams):
        header = events[0]
        assert isinstance(header, Header)
        assert (header.rank, header.world_size) == (rank, ranks)
        assert isinstance(events[-1], Result)
        steps = steps_of(events)
        assert [(s.work.prompt_tokens, s.work.output_tokens, s.work.samples) for s in steps] == [(15, 12, 3)] * 2
        for step in steps:
            assert len(step.token_end_ns) == 4
            ends = (step.start_ns, *step.token_end_ns, step.end_ns)
            assert list(ends) == sorted(ends)
        assert "peak_memory_bytes" in {event.name for event in events if isinstance(event, Metric)}


def test_ranks_end_together_where_the_runs_time_is_over(run_worker: Any, architecture: dict[str, Any]) -> None:
    """A whole warm-up, one measured step of two that were ordered, and everything that is reported then."""
    settings = Train(
        backend="torch", model="tiny", dtype="float32", data_parallel=2, global_batch_size=4, sequence_tokens=8
    )
    code, streams, log = run_worker(settings, architecture, 2, end_ns=1)
    assert code == 0, log
    first, second = (events[-1] for events in streams)
    assert isinstance(first, Result)
    assert first == second
    for events in streams:
        phases = [event.phase for event in events if isinstance(event, Step)]
        assert phases == ["warmup"] * first.warmup_steps + ["measure"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_train_reports_samples_and_loss(
    run_cold_worker: Any, run_worker: Any, architecture: dict[str, Any], ranks: int
) -> None:
    """A joint batch of 4 samples, and a loss near ln(256) = 5.5 from random weights; one rank imports all of it."""
    run = run_cold_worker if ranks == 1 else run_worker
    settings = Train(
        backend="torch",
        model="tiny",
        dtype="float32",
        data_parallel=ranks,
        global_batch_size=4,
        sequence_tokens=8,
    )
    code, streams, log = run(settings, architecture, ranks)
    assert (code, len(streams)) == (0, ranks), log
    for events in streams:
        for step in steps_of(events):
            assert step.work.samples == 4
            assert step.loss == pytest.approx(5.55, abs=0.3)


def test_unknown_family_is_unsupported(run_worker: Any, architecture: dict[str, Any]) -> None:
    """The failure names the family and the known ones."""
    settings = Train(backend="torch", model="tiny", global_batch_size=1, sequence_tokens=8)
    code, [events], _ = run_worker(settings, {**architecture, "model_type": "gemma2"})
    failure = events[-1]
    assert isinstance(failure, Failure)
    assert (code, failure.cause) == (1, "unsupported")
    known = "llama, mistral, qwen2, qwen3, gemma, gemma3_text, phi3, gpt_oss"
    assert failure.message == f"model_type 'gemma2': the torch backend knows {known}"


@pytest.mark.parametrize("ranks", [1, 2])
def test_missing_package_names_the_remedy(
    stage: Path, run_cold_worker: Any, architecture: dict[str, Any], ranks: int
) -> None:
    """A Python without torch: one failure event, no bare traceback."""
    (stage / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    settings = Train(backend="torch", model="tiny", data_parallel=ranks, global_batch_size=2, sequence_tokens=8)
    code, streams, log = run_cold_worker(settings, architecture, ranks)
    failure = streams[0][-1]
    assert isinstance(failure, Failure)
    assert (code, failure.cause, log) == (1, "missing_package", "")
    assert failure.message == (
        "backend 'torch' needs the package 'torch', which the worker's Python can't import; "
        "install it there: pip install torch transformers"
    )


BUILD = ", or build its image: pybench images build train"


@pytest.mark.parametrize(
    ("package", "options", "asked_by", "packages", "image"),
    [
        ("deepspeed", {"strategy": "deepspeed"}, "strategy 'deepspeed'", "deepspeed", BUILD),
        ("peft", {"lora_rank": 4}, "lora_rank", "accelerate peft", BUILD),
        ("unsloth", {"strategy": "unsloth"}, "strategy 'unsloth'", "unsloth", ""),
        ("torchtune", {"strategy": "torchtune"}, "strategy 'torchtune'", "torchao torchtune", ""),
    ],
)
def test_a_strategys_package_is_missing(
    stage: Path,
    run_worker: Any,
    architecture: dict[str, Any],
    package: str,
    options: dict[str, Any],
    asked_by: str,
    packages: str,
    image: str,
) -> None:
    """The rank says so as its result; other strategies need it not."""
    (stage / f"{package}.py").write_text(f"raise ModuleNotFoundError('', name={package!r})\n")
    main = stage / "pybench/worker/main.py"
    forget = f"import sys\n\nsys.modules.pop({package!r}, None)"  # the warm Python has peft
    main.write_text(main.read_text().replace("import sys", forget, 1))
    settings = Train(backend="torch", model="tiny", global_batch_size=2, sequence_tokens=8, **options)
    code, [events], _ = run_worker(settings, architecture)
    failure = events[-1]
    assert isinstance(failure, Failure)
    assert (code, failure.cause) == (1, "missing_package")
    assert failure.message == (
        f"{asked_by} needs the package {package!r}, which the worker's Python can't import; "
        f"install it there: pip install {packages}{image}"
    )


def test_the_stage_is_the_only_source(run_cold_worker: Any, architecture: dict[str, Any], stage: Path) -> None:
    """Every rank runs the staged copy, also where pybench is installed in editable form."""
    (stage / "pybench/worker/main.py").write_text("raise SystemExit('staged')\n")
    settings = Train(
        backend="torch", model="tiny", dtype="float32", data_parallel=1, global_batch_size=1, sequence_tokens=4
    )
    code, _, log = run_cold_worker(settings, architecture)
    assert (code, log) == (1, "staged\n")
