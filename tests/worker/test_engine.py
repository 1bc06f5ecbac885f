"""What engines have in common: requests, how they are sent, gaps between tokens, and the GPUs of a copy."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pybench.model.wire import RequestTimes
from pybench.model.workloads.generate import Generate, gap_values
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.engine import (
    Request,
    config_folder,
    draw_requests,
    drive,
    merged,
    wanted_at_a_time,
)


def settings(**more: Any) -> Generate:
    return Generate(
        **{"backend": "vllm", "model": "m", "batch_size": 8, "prompt_tokens": 10, "output_tokens": 4, **more}
    )


def test_requests_are_the_same_for_any_number_of_copies() -> None:
    """Two copies share what one has, every second request each."""
    alone = draw_requests(settings(length_spread_fraction=0.5, request_rate_per_s=5.0), 100, 0)
    halves = [
        draw_requests(settings(length_spread_fraction=0.5, request_rate_per_s=5.0, data_parallel=2), 100, replica)
        for replica in (0, 1)
    ]
    assert [request.index for request in halves[1]] == [1, 3, 5, 7]
    assert sorted((*halves[0], *halves[1]), key=lambda request: request.index) == list(alone)


def test_lengths_lie_within_their_spread() -> None:
    """10 and 4 tokens give or take half: every length may come, none beyond."""
    many = draw_requests(settings(batch_size=400, length_spread_fraction=0.5), 50, 0)
    assert {len(request.prompt) for request in many} == set(range(5, 16))
    assert {request.output_tokens for request in many} == set(range(2, 7))
    assert all(0 <= token < 50 for request in many for token in request.prompt)
    assert {len(request.prompt) for request in draw_requests(settings(), 50, 0)} == {10}


def test_prompts_share_their_first_tokens() -> None:
    """All replicas share the same 4 tokens; the rest of each prompt stays as without them."""
    own = draw_requests(settings(batch_size=4), 1000, 0)
    alike = [draw_requests(settings(batch_size=4, shared_prefix_tokens=4, data_parallel=2), 1000, r) for r in (0, 1)]
    prompts = {request.index: request.prompt for replica in alike for request in replica}
    assert len({tuple(prompt[:4]) for prompt in prompts.values()}) == 1
    assert [prompts[request.index][4:] for request in own] == [request.prompt[4:] for request in own]
    assert len({tuple(prompt) for prompt in prompts.values()}) == 4


def test_arrivals_are_a_poisson_process() -> None:
    """Gaps have the rate's mean, and a standard deviation as large; without a rate all come at once."""
    arrivals = [0.0, *(r.arrival_s for r in draw_requests(settings(batch_size=4000, request_rate_per_s=20.0), 5, 0))]
    gaps = [later - earlier for earlier, later in pairwise(arrivals)]
    assert statistics.fmean(gaps) == pytest.approx(0.05, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(0.05, rel=0.1)
    assert {request.arrival_s for request in draw_requests(settings(), 5, 0)} == {0.0}


@pytest.mark.parametrize(
    ("load", "wanted"),
    [({}, 4), ({"concurrency": 6}, 3), ({"concurrency": 16}, 4), ({"request_rate_per_s": 1.0}, None)],
)
def test_how_many_were_asked_to_run_at_a_time(load: dict[str, Any], wanted: int | None) -> None:
    """4 requests of one of two replicas."""
    assert wanted_at_a_time(settings(data_parallel=2, **load), 4) == wanted


class Server:
    """Serves each request in 2 ms, and keeps count."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def submit(self, request: Request, arrival_ns: int) -> RequestTimes:
        """Serve one."""
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.002)
        self.running -= 1
        now = time.monotonic_ns()
        return RequestTimes(
            arrival_ns=arrival_ns, first_token_ns=now, last_token_ns=now, prompt_tokens=1, output_tokens=request.index
        )


def _requests(*arrivals_s: float) -> list[Request]:
    return [Request(index, [1], 2, arrival_s) for index, arrival_s in enumerate(arrivals_s)]


def test_a_closed_loop_holds_its_concurrency() -> None:
    """Seven requests, three lanes, every one served once; each arrives when its lane is free."""
    server = Server()
    served = asyncio.run(drive(_requests(*[0.0] * 7), 3, server.submit))
    assert sorted(times.output_tokens for times in served) == list(range(7))
    assert server.most == 3
    assert len({times.arrival_ns for times in served}) > 3


def test_an_open_loop_sends_at_the_moments_that_were_drawn() -> None:
    """Never early, and the time of arrival is the drawn one, also where sending was late."""
    before_ns = time.monotonic_ns()
    served = asyncio.run(drive(_requests(0.0, 0.01, 0.02), None, Server().submit))
    first_ns = served[0].arrival_ns
    assert first_ns >= before_ns
    assert [times.arrival_ns - first_ns for times in served] == [0, 10_000_000, 20_000_000]
    assert all(times.first_token_ns >= times.arrival_ns for times in served)


@pytest.mark.parametrize("gaps_s", [[0.3], [0.4, 0.1, 0.3, 0.2], list(np.linspace(0.01, 0.02, 250))])
def test_percentiles_are_numpys(gaps_s: list[float]) -> None:
    """Interpolated between neighbours, from one gap on."""
    found = gap_values(gaps_s)
    assert found["itl_s"] == pytest.approx(float(np.mean(gaps_s)))
    for percent in (50, 90, 95, 99):
        assert found[f"itl_p{percent}_s"] == pytest.approx(float(np.percentile(gaps_s, percent)))
    assert gap_values([]) == {}


def test_a_models_shape_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the attempt's own folder, with the class that engines look for; gone afterwards."""
    monkeypatch.chdir(tmp_path)
    with config_folder({"model_type": "qwen3", "hidden_size": 8}, "bfloat16") as folder:
        found = json.loads((folder / "config.json").read_text())
    assert (found["architectures"], found["dtype"], found["hidden_size"]) == (["Qwen3ForCausalLM"], "bfloat16", 8)
    assert folder.parent == tmp_path
    assert not folder.exists()
    with (
        pytest.raises(UnsupportedError, match="model_type 'other': engines here know llama"),
        config_folder({"model_type": "other"}, "float32"),
    ):
        pass


def test_arguments_that_the_engine_lacks() -> None:
    """A suite's by name, with the nearest; ours too, should a version drop one."""
    assert merged({"a": 1}, {"b": 2}, ("a", "b"), "engine 1", {}) == {"a": 1, "b": 2}
    with pytest.raises(
        UnsupportedError, match=r"engine_args\.colour: engine 1 has no such argument; did you mean 'color'"
    ):
        merged({}, {"colour": 1}, ("color",), "engine 1", {})
    with pytest.raises(UnsupportedError, match=r"engine_args\.a: engine 1 has no such argument$"):
        merged({"a": 1}, {}, (), "engine 1", {})


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("a", "engine_args.a: pybench sets it itself and has no setting for it"),
        ("b", "engine_args.b: pybench sets it itself; set the benchmark's colour instead"),
        ("c", "engine_args.c: pybench sets it itself and has no setting for it"),
    ],
)
def test_arguments_that_are_decided(given: str, complaint: str) -> None:
    """Set here, or left to the engine by a setting that was not given."""
    decided = {"b": "colour", "c": None}
    with pytest.raises(UnsupportedError) as error:
        merged({"a": 1}, {given: 2}, ("a", "b", "c"), "engine 1", decided)
    assert str(error.value) == complaint


_GPUS = """
import json
from pybench.worker.gpus import visible_gpus
print(json.dumps([gpu.{field} for gpu in visible_gpus()]))
"""


def _gpus(library: Path, visible: str, field: str = "index", fail: str = "") -> Any:
    hidden = {"LD_LIBRARY_PATH": str(library), "FAKE_NVML_DEVICES": "3", "CUDA_VISIBLE_DEVICES": visible}
    hidden["FAKE_NVML_FAIL"] = fail
    environment = {**os.environ, **hidden}
    code = _GPUS.format(field=field)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_visible_gpus_by_uuid_and_index(fake_library: Path) -> None:
    """In the order of the list, up to the first entry that is not there, as CUDA reads it; all for an empty list."""
    uuids = _gpus(fake_library.parent, "", "uuid")
    assert len(uuids) == 3
    assert _gpus(fake_library.parent, f"{uuids[2]},{uuids[0]}") == [2, 0]
    assert _gpus(fake_library.parent, "1,7") == [1]
    assert _gpus(fake_library.parent, "1,7,2") == [1]
    assert _gpus(fake_library.parent, "", "name") == ["NVIDIA H200"] * 3


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName"])
def test_a_lost_gpu_hides_no_other(fake_library: Path, call: str) -> None:
    """The host has left it out, and measures on the others; where none answers the reason is the driver's."""
    uuids = _gpus(fake_library.parent, "", "uuid")
    assert _gpus(fake_library.parent, f"{uuids[2]},{uuids[0]}", fail=f"{call}:15:1") == [2, 0]
    with pytest.raises(subprocess.CalledProcessError) as caught:
        _gpus(fake_library.parent, "", fail=f"{call}:15")
    assert f"UnsupportedError: {call} failed with NVML's code 15" in caught.value.stderr


def test_without_a_driver_there_is_no_gpu_to_name(tmp_path: Path) -> None:
    """And the reason is the loader's."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        _gpus(tmp_path, "")
    assert "UnsupportedError: no NVIDIA driver here: libnvidia-ml.so.1" in caught.value.stderr


_PARENT = """
import os, subprocess, sys, time
from pybench.worker.process import end_group_with_me
end_group_with_me()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print(child.pid, flush=True)
{end}
"""


@pytest.mark.parametrize(("end", "code"), [("os._exit(3)", 3), ("os.kill(os.getpid(), 9)", -9), ("sys.exit(0)", 0)])
def test_what_a_process_started_ends_with_it(end: str, code: int) -> None:
    """However it ends: the child holds this test's pipe open as long as it lives."""
    done = subprocess.run(
        [sys.executable, "-c", _PARENT.format(end=end)], capture_output=True, text=True, check=False, timeout=120
    )
    child = int(done.stdout)
    while True:
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            break
        if state == "Z":
            break
        time.sleep(0.05)
    assert done.returncode == code
