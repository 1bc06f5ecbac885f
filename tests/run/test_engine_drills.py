"""An engine that breaks, from suite file to report: the real worker and adapter, a stand-in for vLLM, fake GPUs."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median

import pytest

from pybench.core.joint_step import joint_steps, phase_cuts_ns
from pybench.model.progress import Progress
from pybench.model.results import Results
from pybench.run.engines import local
from pybench.run.engines.base import Launch
from pybench.run.engines.local import Local
from pybench.run.engines.process import processes_marked
from pybench.run.loop import Run
from pybench.run.prepare import prepare_run

WORKER_TESTS = Path(__file__).parents[1] / "worker"
SUITE = """
schema = 1
name = "drill"
description = "a stand-in for vLLM on one and on two fake GPUs"

[[benchmark]]
name = "decode"
workload = "generate"
backend = "vllm"
model = "llama-tiny"
batch_size = 4
prompt_tokens = 8
output_tokens = 40
attempts = 1
max_attempts = 1
steps = 5
max_warmup_steps = 1
time_limit_s = {time_limit_s}

[benchmark.axes]
tensor_parallel = [1, 2]
{loads}
"""

Drill = Callable[..., tuple[Run, Results]]


class DrillLauncher(Local):
    """The stand-in misbehaves on two GPUs."""

    behaviour = ""
    library = ""

    def environment(self, job: Launch) -> dict[str, str]:
        behaviour = self.behaviour if len(job.gpu_uuids) > 1 else ""
        fake = {"FAKE_ENGINE": behaviour, "FAKE_NVML_DEVICES": "2", "LD_LIBRARY_PATH": self.library}
        return {**super().environment(job), **fake}


@pytest.fixture
def drill(tmp_path: Path, fake_nvml: Callable[..., None], fake_library: Path, monkeypatch: pytest.MonkeyPatch) -> Drill:
    """Run the suite with a behaviour: the run and its results."""
    fake_nvml(devices=2, load="constant:400")
    monkeypatch.setattr(local, "missing_packages", lambda _python, _names: ())

    def run(behaviour: str, time_limit_s: int = 250, loads: str = "") -> tuple[Run, Results]:
        suite = tmp_path / "drill.toml"
        text = SUITE.replace("batch_size = 4\n", "") if loads else SUITE
        suite.write_text(text.format(time_limit_s=time_limit_s, loads=loads))
        launcher = DrillLauncher()
        monkeypatch.setattr(DrillLauncher, "behaviour", behaviour)
        monkeypatch.setattr(DrillLauncher, "library", str(fake_library.parent))
        made = prepare_run(suite, tmp_path / "runs", lambda _: launcher)
        shutil.copy(WORKER_TESTS / "fakes/vllm.py", made.folder.worker)
        shutil.copy(WORKER_TESTS / "recorded/vllm-0.20.2.json", made.folder.worker)
        return made, made.finish(Progress())

    return run


def engine_pids(run: Run) -> list[int]:
    logs = [(run.folder.path / record.log).read_text() for record in run.folder.journal.records()]
    return [int(pid) for log in logs for pid in re.findall(r"engine process (\d+)", log)]


def assert_nothing_is_left(run: Run) -> None:
    assert not list(processes_marked(f"{run.folder.mark}/"))
    pids = engine_pids(run)
    assert pids
    for pid in pids:
        while Path(f"/proc/{pid}").exists():  # the test's own time limit ends this
            time.sleep(0.05)


def test_a_healthy_engine_shows_everything(drill: Drill) -> None:
    """Tokens, latencies, key-value cache, joules of each GPU, and those of prefill and decode apart."""
    run, results = drill("")
    one, two = results.points
    assert (one.status, two.status) == ("ok", "ok"), (one.reason, two.reason)
    expected = {"output_tokens_per_s", "ttft_p99_s", "itl_p50_s", "e2e_s", "kv_cache_tokens", "num_preemptions"}
    assert expected | {"energy_j_per_output_token", "mfu_fraction", "mbu_fraction"} <= set(one.metrics)
    assert (len(one.energy_by_gpu_j), len(two.energy_by_gpu_j)) == (1, 2)
    prefill, decode = two.energy_phases
    assert (prefill.name, decode.name) == ("prefill", "decode")
    assert "short_window" in prefill.flags
    # Joules are the mean over the steps, the time is their median: on a busy machine the two differ.
    (record,) = (record for record in run.folder.journal.records() if record.point_id == two.id)
    cuts_ns = [phase_cuts_ns(step.ranks) for step in joint_steps(record)]
    assert median(cut - start for start, cut, _ in cuts_ns) < median(end - cut for _, cut, end in cuts_ns)
    mean_s = fmean(end - cut for _, cut, end in cuts_ns) / 1e9
    assert decode.low_j is not None
    assert decode.high_j is not None
    assert decode.low_j <= 2 * 400 * mean_s <= decode.high_j
    assert_nothing_is_left(run)


def test_an_engine_is_started_once_for_its_loads(drill: Drill) -> None:
    """Two batches on each engine: every point has its own steps, joules and trace; start-up is the first one's."""
    run, results = drill("", loads="batch_size = [2, 4]")
    assert [point.status for point in results.points] == ["ok"] * 4, [point.reason for point in results.points]
    records = run.folder.journal.records()
    assert [len(record.warm_after) for record in records] == [0, 1, 0, 1]
    assert len(set(engine_pids(run))) == 2
    assert len({record.trace for record in records}) == 4
    for record, point in zip(records, results.points, strict=True):
        assert all((run.folder.path / str(record.trace)).is_file() for record in records)
        assert [step.work.samples for step in record.ranks[0].steps] == [point.axes["batch_size"]] * 5
        assert len(point.energy_by_gpu_j) == point.num_gpus
        assert ("startup_s" in point.metrics) == (not record.warm_after)
        assert len(point.shared_with) == 1
    assert_nothing_is_left(run)


@pytest.mark.parametrize(
    ("behaviour", "cause", "message"),
    [
        ("dies-at-start", "engine", "vLLM's engine process did not start: ValueError: the shape makes no sense"),
        (
            "out-of-memory",
            "out_of_memory",
            "vLLM's engine process did not start: torch.OutOfMemoryError: CUDA out of memory. Tried 8 GiB",
        ),
        (
            "dies-at-work",
            "engine",
            "vLLM's engine process died at work: RuntimeError: NCCL error: unhandled system error",
        ),
    ],
)
def test_a_broken_engine_is_a_record_and_the_rest_goes_on(
    drill: Drill, behaviour: str, cause: str, message: str
) -> None:
    """With the engine's own words; the healthy point is measured, and no process is left."""
    run, results = drill(behaviour)
    one, two = results.points
    ran_out = cause == "out_of_memory"
    assert (one.status, two.status) == ("ok", "does_not_fit" if ran_out else "failed")
    assert two.reason == f"{'does not fit' if ran_out else cause}: {message}"
    assert results.verdict == ("no_expectation" if ran_out else "error")
    assert_nothing_is_left(run)


def test_an_engine_that_hangs_is_ended(drill: Drill) -> None:
    """In a collective, say: the time limit is its cause."""
    run, results = drill("hangs", time_limit_s=20)
    two = results.points[1]
    assert two.status == "failed"
    assert two.reason is not None
    assert two.reason.startswith("time_limit: no result within 20 s")
    assert_nothing_is_left(run)
