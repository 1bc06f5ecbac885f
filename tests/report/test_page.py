"""The HTML page as text: its content, and that no text of a run changes its structure."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pybench.files.shipped import shipped_suites
from pybench.model.results import Results
from pybench.power.chart import extremes, pack, pack_levels, trace_chart
from pybench.report.page.render import power_payload, render
from pybench.report.run.view import RunView
from tests.report.kept import ONE_OF_A_KIND
from tests.report.page_run import SECOND, power_trace, run_in_waves, run_over_hosts, traced_run
from tests.report.pages import PageReader


def test_the_policy_permits_the_pages_own_scripts_and_styles_alone(results: Results, tmp_path: Path) -> None:
    """``default-src 'none'``, and one hash for each inline element, that of its text."""
    page = PageReader(render(traced_run(tmp_path, results)))
    (policy,) = [a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a]
    assert policy is not None
    assert policy.startswith("default-src 'none'; base-uri 'none'; form-action 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    acting = [text for kind, text in page.inline if text.strip() and not text.startswith("[{")]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in acting]
    assert re.findall(r"'sha256-([^']+)'", policy) == [*hashes[2:], *hashes[:2]]


@pytest.mark.parametrize("path", ONE_OF_A_KIND, ids=lambda path: path.stem)
def test_kept_runs_need_less_than_150_kib(path: Path) -> None:
    """Without traces, and without anything to load."""
    text = render(RunView.of_file(path))
    assert len(text.encode()) < 150 * 1024
    page = PageReader(text)
    assert not any(name in a for _, a in page.tags for name in ("src", "href", "srcset", "action", "onload", "style"))


def test_hostile_text_stays_text(hostile: Results, results: Results) -> None:
    """The page of a run whose every text is an attack has the same kinds of elements as any other."""
    known = {tag for tag, _ in PageReader(render(RunView(results=results))).tags}
    text = render(RunView(results=hostile))
    assert {tag for tag, _ in PageReader(text).tags} <= known
    assert "<script>&amp;" not in text
    assert all(char.isprintable() or char == "\n" for char in text)


def test_everything_that_did_not_pass_is_there_with_a_next_step(results: Results) -> None:
    """Reasons, skipped points, the flags' meaning and where the figures come from."""
    text = render(RunView(results=results))
    for words in (
        "out_of_memory: tried 2 GiB",
        "Next: use a smaller batch or model",
        "needs 8 GPUs, found 4",
        "one attempt was measured, so the spread between runs is unknown",
        "vllm-0.31.0 docker.io/vllm/vllm-openai@sha256:a4a4c0437bf7",
        "0123456789abcdef",
    ):
        assert words in text


def test_provenance_has_every_gpu_on_a_line_with_the_modes_that_are_off() -> None:
    """GPU 0 has its index; only what is unknown is left out. A row of the topology stays one."""
    text = render(RunView.of_file(shipped_suites() / "measured/node_check-h100x2-20261125.json"))
    assert re.findall(r">index: (\d); uuid: GPU-", text) == ["0", "1"]
    assert text.count("mig enabled: False") == 2
    assert "X, NV18<br>NV18, X" in text


def test_traces_of_attempts_are_in_the_page(results: Results, tmp_path: Path) -> None:
    """Both good attempts, not the failed one; a damaged trace is a sentence, not an error."""
    view = traced_run(tmp_path, results)
    (tmp_path / "trace.2.npz").write_bytes(b"no trace")
    text = render(view)
    assert "decode TP 1, attempt 1" in text
    assert re.search(r"decode TP 1, attempt 2: [^<]*trace\.2\.npz: not a power trace", text)


def test_each_host_has_its_power_on_its_own_clock(results: Results, tmp_path: Path) -> None:
    """Steps have the same distance from the start of both hosts' traces."""
    first, other = power_payload(run_over_hosts(tmp_path, results)).attempts
    assert (first["label"], other["label"]) == ("decode TP 1, attempt 1", "decode TP 1, attempt 1, host n2")
    assert first["steps"] == other["steps"] != []


def test_times_of_days_fit_their_columns() -> None:
    """The beginning and the end of a recording may be farther apart than 32 bits of 0.1 ms."""
    trace = power_trace(1, 2)
    late = replace(trace.gpus[0].series, realtime_ns=[SECOND, 70 * 3600 * SECOND])
    trace = replace(trace, end_ns=80 * 3600 * SECOND, gpus=(replace(trace.gpus[0], series=late),))
    attempt = trace_chart("train", [(SECOND, SECOND, trace.end_ns)], "command", trace)
    times_s = unpack(attempt["gpus"][0]["t"]) * attempt["tick_s"]
    assert times_s.tolist() == pytest.approx([1.0, 70 * 3600.0], abs=1e-3)
    assert attempt["end"] * attempt["tick_s"] == pytest.approx(80 * 3600.0, abs=1e-3)


def test_times_that_go_back_fit_their_columns() -> None:
    """A counter's call may be said to return after years: an edited trace is drawn all the same."""
    trace = power_trace(1, 2)
    counter = replace(trace.gpus[0].counter, before_ns=[1, 2, 3], after_ns=[1, 2**60, 3], energy_mj=[1, 2, 3])
    trace = replace(trace, gpus=(replace(trace.gpus[0], counter=counter),))
    attempt = trace_chart("train", [(1, 1, 2)], "command", trace)
    assert max(unpack(attempt["gpus"][0]["anchors"])) * attempt["tick_s"] == pytest.approx(2**60 / 1e9, rel=1e-3)


def test_prefill_and_decode_are_apart_where_the_tables_have_them_apart(results: Results, tmp_path: Path) -> None:
    """Of four steps each; none where a sequence ends before another has its first token."""
    apart, waves = (power_payload(run(tmp_path, results)).attempts[0] for run in (traced_run, run_in_waves))
    assert [name for name, _, _ in apart["phases"]] == ["prefill", "decode"] * 4
    assert (len(waves["steps"]), waves["phases"]) == (4, [])


def test_latency_is_drawn_where_requests_differ(results: Results) -> None:
    """Of requests that all end together there is nothing to draw."""
    together = tuple(
        replace(point, metrics={name: value for name, value in point.metrics.items() if not name.startswith("e2e_")})
        for point in results.points
    )
    shown = [render(RunView(results=replace(results, points=points))) for points in (results.points, together)]
    assert ["Latency against throughput" in text for text in shown] == [True, False]


@pytest.mark.parametrize("name", ["output_tokens_per_s", "energy_j_per_output_token"])
def test_points_whose_only_figure_is_zero_are_drawn(results: Results, name: str) -> None:
    """Joules of a counter that stands still, or a throughput of nothing, on an axis without a length."""
    point = results.points[0]
    metrics = {**point.metrics, name: replace(point.metrics[name], value=0.0, low=None, high=None)}
    text = render(RunView(results=replace(results, points=(replace(point, metrics=metrics),))))
    assert "Energy against throughput" in text
    assert not re.search(r"\b(nan|inf)\b", text.partition("<main")[2].partition("<script")[0])


def test_a_bad_gpu_is_named(results: Results) -> None:
    """The GPU that a failed check names carries its reason."""
    text = render(RunView(results=results))
    card = text[text.index('class="gpu fail"') :]
    assert card.index("GPU-66666666-7777") < card.index("</li>")
    assert "slowest: because fail" in card[: card.index("</li>")]


@pytest.mark.parametrize("values", [[], [5], [0, 2**31 - 1, 0, -7], list(range(1000, 0, -1))])
def test_packed_columns_come_back(values: list[int]) -> None:
    """Whatever their order."""
    packed = pack(np.array(values, dtype=np.int64))
    assert unpack(packed).tolist() == values


def test_a_difference_too_large_is_refused() -> None:
    """Rather than wrapped around."""
    with pytest.raises(ValueError, match="32 bits"):
        pack(np.array([0, 2**31], dtype=np.int64))


def test_the_coarse_view_keeps_every_extreme() -> None:
    """10 values in 2 buckets: each bucket's least and greatest, at their own times."""
    times = np.arange(10, dtype=np.int64)
    values = np.array([5, 1, 5, 9, 5, 4, 4, 8, 2, 4], dtype=np.int64)
    kept_times, kept = extremes(times, values, 2)
    assert (kept_times.tolist(), kept.tolist()) == ([1, 3, 7, 8], [1, 9, 8, 2])


def test_a_million_samples_need_less_than_3_mb() -> None:
    """Times that jitter by 2 ms and power that jitters by 30 W, in steps of the sensor's 323 mW."""
    random = np.random.default_rng(1)
    ticks = np.arange(1_000_000) * 200 + random.integers(0, 20, 1_000_000)
    power_mw = 323 * random.integers(1200, 1300, 1_000_000)
    assert len(pack(ticks)) + sum(map(len, pack_levels(power_mw).values())) < 3_000_000


def unpack(text: str) -> np.ndarray:
    """The values given to :func:`pack`."""
    planes = np.frombuffer(gzip.decompress(base64.b64decode(text)), dtype=np.uint8).reshape(4, -1)
    return np.cumsum(np.ascontiguousarray(planes.T).view("<i4").ravel(), dtype=np.int64)
