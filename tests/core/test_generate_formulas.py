"""Latencies, utilisation, copies and phases of generation, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pybench.core.measurements import Measurements, metric_samples
from pybench.core.summary import summarize
from pybench.model.record import PhaseEnergy
from pybench.model.suite import Plan
from pybench.model.wire import RequestTimes, Step, Work
from tests.build import Build

_MS = 1_000_000


def _request(arrival: int, first: int, last: int, tokens: int = 11) -> RequestTimes:
    """Times in ms."""
    return RequestTimes(
        arrival_ns=arrival * _MS,
        first_token_ns=first * _MS,
        last_token_ns=last * _MS,
        prompt_tokens=30,
        output_tokens=tokens,
    )


def _step(*requests: RequestTimes, length: int = 1000, **values: float) -> Step:
    tokens = sum(request.output_tokens for request in requests)
    work = Work(prompt_tokens=30 * len(requests), output_tokens=tokens, samples=len(requests))
    return Step(
        index=0, phase="measure", start_ns=0, end_ns=length * _MS, work=work, requests=requests, values=dict(values)
    )


def _values(build: Build, *ranks: Any, **settings: Any) -> dict[str, float]:
    point = build.generate(**settings)
    samples = metric_samples(point, [build.record(point, ranks)])
    return {name: attempts[0][0] for name, attempts in samples.items()}


def test_each_request_has_its_own_latencies(build: Build) -> None:
    """TTFT 10, 20 and 90 ms: the 90th percentile lies 4/5 of the way between the upper two. TPOT 10 ms each."""
    requests = (_request(0, 10, 110), _request(0, 20, 120), _request(10, 100, 200))
    found = _values(build, build.rank((_step(*requests, itl_s=0.01, itl_p99_s=0.03),)))
    assert found["ttft_s"] == pytest.approx(0.040)
    assert (found["ttft_p50_s"], found["ttft_p90_s"]) == pytest.approx((0.020, 0.020 + 0.8 * 0.070))
    assert found["tpot_s"] == found["tpot_p99_s"] == pytest.approx(0.010)
    assert found["e2e_p50_s"] == pytest.approx(0.120)
    assert (found["itl_s"], found["itl_p99_s"]) == (0.01, 0.03)
    assert "itl_p50_s" not in found


def test_a_single_token_has_no_time_per_further_token(build: Build) -> None:
    """Its first token is its last."""
    found = _values(build, build.rank((_step(_request(0, 10, 10, tokens=1)),)))
    assert "tpot_s" not in found
    assert found["e2e_s"] == pytest.approx(0.010)


def test_copies_add_up_over_the_span_from_the_first_start_to_the_last_end(build: Build) -> None:
    """22 and 11 tokens in 1 s; percentiles are over all requests, ITL is the slower copy's, cache room is summed."""
    first = _step(_request(0, 10, 110), _request(0, 10, 110), length=800, itl_p99_s=0.02, num_preemptions=1)
    second = _step(_request(0, 500, 900), length=1000, itl_p99_s=0.05, num_preemptions=2)
    ranks = (
        build.rank((first,), told={"kv_cache_tokens": 100}),
        build.rank((second,), 1, replica=1, told={"kv_cache_tokens": 50}),
    )
    found = _values(build, *ranks, data_parallel=2)
    assert found["output_tokens_per_s"] == pytest.approx(33.0)
    assert found["requests_per_s"] == pytest.approx(3.0)
    assert found["ttft_p50_s"] == pytest.approx(0.010)
    assert found["ttft_p99_s"] == pytest.approx(0.010 + 0.98 * 0.490)
    assert (found["itl_p99_s"], found["kv_cache_tokens"], found["num_preemptions"]) == (0.05, 150, 3)


def test_ranks_of_one_copy_count_once(build: Build) -> None:
    """Both told of the same tokens."""
    work = Work(prompt_tokens=120, output_tokens=40, samples=4)
    ranks = [build.rank(build.steps([2.0], work, rounds=10), number) for number in (0, 1)]
    assert _values(build, *ranks, degree=2)["output_tokens_per_s"] == 20.0


def test_utilisation_by_hand(build: Build) -> None:
    """Shape of Llama-3.1-8B on an H200: 4 sequences of 30 and 10 tokens in 2 s, rounds 0.2 s apart.

    Weights outside embedding and norms: 32 * (4096*128*80 + 3*4096*14336) = 6.979e9, head 0.525e9. A decode round reads
    2 bytes of each, and of 35 tokens in each of 4 sequences 32 * 2 * 8 * 128 values, of 1 byte in an FP8 cache.
    """
    work = Work(prompt_tokens=120, output_tokens=40, samples=4)
    rank = build.rank(build.steps([2.0], work, rounds=10), device_name="NVIDIA H200")
    found = _values(build, rank)
    layers, head = 32 * (4096 * 128 * 80 + 3 * 4096 * 14336), 128256 * 4096
    read = 2 * (layers + head) + 4 * 35 * 32 * 2 * 8 * 128 * 2
    assert found["mbu_fraction"] == pytest.approx(read / (0.2 * 4.8e12))
    small = _values(build, rank, engine_args={"kv_cache_dtype": "fp8"})
    assert small["mbu_fraction"] == pytest.approx((read - 4 * 35 * 32 * 2 * 8 * 128) / (0.2 * 4.8e12))
    packed = _values(build, rank, quantization="fp8")  # which leaves the head as it is
    assert packed["mbu_fraction"] == pytest.approx((read - layers) / (0.2 * 4.8e12))
    assert {"model_flops", "mfu_fraction", "mbu_fraction"}.isdisjoint(_values(build, rank, prefix_caching=True))
    attention = 4 * 32 * 32 * 128
    prefill = 30 * (2 * layers + attention * 15.5) + 2 * head
    flops = 4 * (prefill + 9 * (2 * (layers + head) + attention * 35))
    assert found["model_flops"] == pytest.approx(flops)
    assert found["mfu_fraction"] == pytest.approx(flops / (2.0 * 989.5e12))


@pytest.mark.parametrize(
    ("name", "settings", "known"),
    [
        ("a GPU of tomorrow", {}, set()),
        ("NVIDIA H200", {"dtype": "float32"}, {"mbu_fraction"}),
        ("NVIDIA H200", {"backend": "vllm", "pipeline_parallel": 2}, {"mfu_fraction"}),
        ("NVIDIA H200", {"quantization": "fp8"}, {"mfu_fraction", "mbu_fraction"}),
        ("NVIDIA H200", {"engine_args": {"kv_cache_dtype": "turboquant_k8v4"}}, {"mfu_fraction"}),
    ],
)
def test_utilisation_is_unknown_where_peaks_or_bytes_are(
    build: Build, name: str, settings: dict[str, Any], known: set[str]
) -> None:
    """Unknown is not zero."""
    work = Work(prompt_tokens=120, output_tokens=40, samples=4)
    found = _values(build, build.rank(build.steps([2.0], work, rounds=10), device_name=name), **settings)
    assert found.keys() & {"mfu_fraction", "mbu_fraction"} == known


def test_a_mixture_of_experts_reads_less_than_everything(build: Build) -> None:
    """Four sequences with one of four experts each: an expert is missed with probability 0.75^4."""
    work = Work(prompt_tokens=120, output_tokens=40, samples=4)
    rank = build.rank(build.steps([2.0], work, rounds=10), device_name="NVIDIA H200")
    mixture = replace(build.generate(), architecture={**build.architecture, "num_local_experts": 4})
    [found, dense] = (metric_samples(point, [build.record(point, (rank,))]) for point in (mixture, build.generate()))
    bandwidth = 0.2 * 4.8e12
    more = 2 * 32 * 3 * 4096 * 14336 * (4 * (1 - 0.75**4) - 1)
    assert found["mbu_fraction"][0][0] - dense["mbu_fraction"][0][0] == pytest.approx(more / bandwidth, rel=1e-9)
    assert "mfu_fraction" in found


def test_requests_that_never_decoded_use_no_bandwidth(build: Build) -> None:
    """One token each."""
    found = _values(build, build.rank((_step(_request(0, 10, 10, tokens=1)),), device_name="NVIDIA H200"))
    assert "mbu_fraction" not in found


def test_energy_of_phases_and_gpus(build: Build) -> None:
    """Two steps of 120 prompt and 40 output tokens; 60 J, 24 of them prefill; 40 and 20 J a GPU: 2/3 apart."""
    point = build.generate(2)
    phases = (
        PhaseEnergy(name="prefill", duration_s=0.4, energy_j=24.0, energy_low_j=20.0, energy_high_j=28.0),
        PhaseEnergy(
            name="decode", duration_s=3.6, energy_j=36.0, energy_low_j=30.0, energy_high_j=42.0, flags=("gap",)
        ),
    )
    records = build.measured(point, [[2.0, 2.0]] * 2, energy=replace(build.energy([40.0, 20.0], 4.0), phases=phases))
    found = metric_samples(point, records)
    assert found["prefill_energy_j_per_prompt_token"][0] == (24.0 / 240,)
    assert found["decode_energy_j_per_output_token"][0] == (36.0 / 80,)
    assert found["output_tokens_per_s_per_w"][0] == (80 / 60.0,)
    assert found["energy_imbalance_fraction"][0] == pytest.approx([20 / 30])
    assert found["model_flops_per_j"][0] == pytest.approx([2 * found["model_flops"][0][0] / 60.0])
    (result,) = summarize(Measurements.of(Plan(points=(point,), skips=()), records))
    prefill, decode = result.energy_phases
    assert (prefill.name, prefill.energy_j) == ("prefill", 12.0)
    assert prefill.duration_s == pytest.approx(0.2)
    assert (prefill.low_j, prefill.high_j, decode.flags) == (10.0, 14.0, ("gap",))


def test_phases_and_steps_have_the_same_location(build: Build) -> None:
    """One step in three took four times as long: the median of each leaves it out; joules are means over the three."""
    point = build.generate()
    phases = (
        PhaseEnergy(name="prefill", duration_s=1.2, energy_j=12.0, energy_low_j=9.0, energy_high_j=15.0),
        PhaseEnergy(name="decode", duration_s=10.8, energy_j=90.0, energy_low_j=80.0, energy_high_j=99.0),
    )
    records = build.measured(point, [[2.0, 8.0, 2.0]], energy=replace(build.energy([102.0], 12.0), phases=phases))
    (result,) = summarize(Measurements.of(Plan(points=(point,), skips=()), records))
    prefill, decode = result.energy_phases
    assert (prefill.duration_s, decode.duration_s) == pytest.approx((0.2, 1.8))
    assert prefill.duration_s + decode.duration_s == pytest.approx(result.metrics["step_s"].value)
    assert (prefill.energy_j, decode.energy_j) == (4.0, 30.0)


def test_a_phase_of_unknown_energy_is_left_out(build: Build) -> None:
    """Unknown is not zero."""
    point = build.generate()
    phases = (PhaseEnergy(name="prefill", duration_s=0.4), PhaseEnergy(name="decode", duration_s=0.4))
    records = build.measured(point, [[2.0]], energy=replace(build.energy([None], 2.0), phases=phases))
    (result,) = summarize(Measurements.of(Plan(points=(point,), skips=()), records))
    assert result.energy_phases == ()


def _mbu(build: Build, *ranks: Any, **settings: Any) -> float:
    return _values(build, *ranks, **settings)["mbu_fraction"]


def test_idle_time_between_requests_is_no_decoding(build: Build) -> None:
    """Requests without overlap read the same bytes as one request; replicas count separately."""
    alone, apart = (
        build.rank((_step(*requests, length=5000),), device_name="NVIDIA H200")
        for requests in ((_request(0, 10, 110),), (_request(0, 10, 110), _request(3000, 3010, 3110)))
    )
    assert _mbu(build, apart) == pytest.approx(_mbu(build, alone))
    together = build.rank((_step(_request(0, 10, 110), _request(0, 10, 110)),), device_name="NVIDIA H200")
    assert _mbu(build, together) > 1.0001 * _mbu(build, alone)
    replicas = [build.rank((_step(_request(0, 10, 110)),), n, device_name="NVIDIA H200", replica=n) for n in (0, 1)]
    assert _mbu(build, *replicas, data_parallel=2) == pytest.approx(_mbu(build, alone))


def test_long_answers_have_more_rounds(build: Build) -> None:
    """Of 10 ms a round: 100 rounds with both of 35 tokens and 80, or 900 with the long one alone, of 35 and 530."""
    short, long = _request(0, 10, 1010, tokens=101), _request(0, 10, 10_010, tokens=1001)
    found = _mbu(build, build.rank((_step(short, long, length=10_010),), device_name="NVIDIA H200"))
    layers, head = 32 * (4096 * 128 * 80 + 3 * 4096 * 14336), 128256 * 4096
    cached = 2 * 32 * 2 * 8 * 128
    # Sequences 1.1 in a round; contexts 30 + 50.5 and 30 + 500.5, the long one's of ten times as many rounds.
    mean = (1 * 80.5 + 10 * 530.5) / 11
    assert found == pytest.approx((2 * (layers + head) + 1.1 * mean * cached) / (0.01 * 4.8e12))
