"""The terminal report."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from pybench.files.shipped import shipped_suites
from pybench.model.results import Results
from pybench.model.suite import AxisValue
from pybench.model.verdict import Decision, Verdict
from pybench.report.run.terminal import render
from pybench.report.run.view import RunView, sentence
from pybench.report.text.labels import short_labels
from tests.builders import NODE_CHECK
from tests.report.kept import KEPT

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def _render(results: Results, *, width: int = 80, color: bool = False, detail: bool = False) -> str:
    return render(RunView(results=results), width=width, color=color, detail=detail)


def _words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("detail", [False, True])
@pytest.mark.parametrize("width", [80, 120, 400])
def test_fits_its_width(results: Results, width: int, *, detail: bool) -> None:
    """Every line, the verdict's too, which comes last."""
    text = _render(results, width=width, detail=detail)
    assert max(map(cell_len, text.splitlines())) <= width
    assert _words(text).endswith(f" verdict: fail - {results.reason}")


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_runs_fit_80_columns(path: Path) -> None:
    """Without a table that goes on below, and no point is a paragraph of heads and cells. The verdict is last."""
    view = RunView.of_file(path)
    for detail in (True, False):
        text = render(view, width=80, detail=detail)
        lines = text.splitlines()
        assert text.rpartition("\n\n")[2].startswith("verdict: ")
        assert max(map(cell_len, lines)) <= 80
        assert "continued" not in text
    assert [line for line in lines if re.match(r"    \S*(/s|/J) [\d.,]+[ ,]", line)] == []


def test_a_healthy_node_is_one_screen() -> None:
    """22 points and 23 node checks in fewer than 60 lines; the joules of a node point carry no flag."""
    path = shipped_suites() / "measured" / "node_check-h200x4-20261121.json"
    text = render(RunView.of_file(path), width=80)
    assert len(text.splitlines()) < 60
    assert "alias_risk" not in text


def test_a_node_measured_once_says_so_once() -> None:
    """Two GPUs, their links and the points all lack attempts. 31 rows and checks, one reason and step."""
    path = shipped_suites() / "measured" / "node_check-h200x2-20261124.json"
    lines = render(RunView.of_file(path), width=80).splitlines()
    assert len(lines) < 60
    start, end = lines.index("What did not pass"), lines.index("Not judged")
    assert [line.strip() for line in lines[start + 1 : end]] == [
        "inconclusive matmul matmul_flops_per_s, matmul_narrow matmul_flops_per_s,",
        "memory copy memory_bytes_per_s, memory triad memory_bytes_per_s and 27 more:",
        "one attempt shows no spread between runs; two are needed",
        "next: measure two attempts or more: --attempts 2, or attempts of the",
        "benchmark",
        "",
    ]


def test_a_gpu_that_seems_slow_in_one_attempt_has_a_line_of_its_own(results: Results) -> None:
    """The finding says how slow the GPU is; a GPU near the others has no finding, on either side of a limit."""
    decision = Decision(num_attempts=1, p_pass=1.0, p_fail=1.0, pass_level=0.01, fail_level=0.01)
    check = dataclasses.replace(NODE_CHECK, verdict="inconclusive", unit="fraction", decision=decision)
    check = dataclasses.replace(check, point_id=results.points[0].id)
    found = [
        dataclasses.replace(check, subject="GPU 0", value=-0.3, limit=-0.1, reason="a third slower"),
        dataclasses.replace(check, subject="GPU 1", value=-0.01, limit=-0.1, reason="as fast"),
        dataclasses.replace(check, subject="GPU 2", value=0.01, limit=0.15, reason="as many joules"),
    ]
    text = _words(_render(dataclasses.replace(results, scaling=(), checks=(), comparisons=(), node=tuple(found))))
    assert f"inconclusive GPU 0 {check.name} in decode TP 1: a third slower" in text
    assert "a third slower" in text
    assert "as fast" not in text
    assert "as many joules" not in text
    assert "one attempt shows no spread between runs; two are needed" in text


def test_waits_stand_beside_the_throughput_where_requests_differ() -> None:
    """Percentiles are shown where a suite asks for latency."""
    path = shipped_suites() / "measured" / "serve_latency-h200x1-20261122.json"
    lines = render(RunView.of_file(path), width=80).splitlines()
    assert any(line.split()[:4] == ["point", "tok/s", "TTFT", "p99"] for line in lines)
    assert "closed 8 at a time    1,418  95.86 ms   5.79 ms     358.2  a" in lines


def test_a_table_that_is_too_wide_comes_apart_by_benchmark() -> None:
    """Before the waits would be left out: the names of one benchmark's points are shorter."""
    path = shipped_suites() / "measured" / "serve_latency_open-h100x1-20261124.json"
    lines = render(RunView.of_file(path), width=80).splitlines()
    assert "open: vllm; 1 attempt each" in lines
    assert "32 requests/s  3,401  93.88 ms  15.01 ms     185.2  a" in lines
    assert "no prefix_caching  3,076  365.9 ms  10.05 ms     198.4  -" in lines


def test_trainings_that_differ_by_method_stand_with_the_fastest_first() -> None:
    """A suite's own order says nothing. Missing points come last; sizes of one benchmark keep their order."""
    measured = shipped_suites() / "measured"
    lines = render(RunView.of_file(measured / "train_strategies-h200x4-20261126.json"), width=80).splitlines()
    assert "points, the fastest first" in lines
    rows = [found for line in lines if (found := re.match(r".*?  +([0-9,]+)  +[0-9.]+ GiB", line))]
    figures = [float(found[1].replace(",", "")) for found in rows]
    assert len(figures) == 11
    assert figures == sorted(figures, reverse=True)
    text = render(RunView.of_file(measured / "sft_presets-h100x1-20261124.json"), width=80)
    assert re.search(r"\npreset .*\nsparing .*\nfast .* missing\n", text)
    text = render(RunView.of_file(measured / "ddp_strong-h200x2-20261126.json"), width=80)
    assert re.search(r"\nbucket_cap_mb 25 .*\nbucket_cap_mb 100 .*\nbucket_cap_mb 200 ", text)


def test_an_expectation_of_a_ratio_without_a_baseline_is_no_column() -> None:
    """The limit would seem to be one of the figure; *Not judged* names the baseline."""
    path = shipped_suites() / "measured" / "fsdp_accumulated-h200x2-20261126.json"
    text = render(RunView.of_file(path), width=80)
    assert "expected" not in text.partition("Not judged")[0].partition("weak: DP 2")[2]
    assert "baseline: weak[data_parallel=1] was left out by -k" in text


def test_a_loss_that_agrees_is_no_expectation() -> None:
    """The guard is counted after the verdicts; a point's verdict is about the suite's expectations."""
    path = shipped_suites() / "measured" / "ddp_buckets-h100x1-20261124.json"
    lines = render(RunView.of_file(path), width=80).splitlines()
    assert lines[1] == "nothing is expected; 2 losses agree with another point's"
    assert "bucket_cap_mb 100  6,396  59.91 GiB     102.9" in lines


def test_comparisons_of_points_outside_the_plan_are_not_listed() -> None:
    """Each point left out is named once, under *Not run*."""
    path = shipped_suites() / "measured" / "unsloth_scaling-h100x1-20261124.json"
    text = render(RunView.of_file(path), width=80)
    assert "unsloth DP 1  below plain DP 1" in text
    assert "unsloth DP 2" not in text


def test_a_metric_with_limits_shows_every_figure_and_empty_columns_of_a_job_are_left_out() -> None:
    """The second point has no limit on its memory, the job nothing to save on."""
    path = shipped_suites() / "measured" / "sft_presets-h100x1-20261124.json"
    lines = render(RunView.of_file(path), width=80).splitlines()
    assert "sparing  811.3  20.46 GiB     493.4  -" in lines
    assert "point   GPUs      h    MJ" in lines


def test_joules_stand_once_with_what_is_allowed_of_them() -> None:
    """A suite with limits on energy has no second column of it."""
    path = shipped_suites() / "measured" / "tp_scaling_whole-h200x4-20261122.json"
    lines = [" ".join(line.split()) for line in render(RunView.of_file(path), width=80).splitlines()]
    assert "point tok/s speedup limit mJ/token verdict" in lines
    assert "TP 1 3,647.9 ±4.5 1 (baseline) ≥ 3,477 163.51 ±0.17 (≤ 181.4) pass" in lines


def test_what_every_point_is_flagged_for_stands_once() -> None:
    """Below the table, without a letter; points that were not measured have no flags, and change nothing of it."""
    path = shipped_suites() / "measured" / "serve_latency_open-h100x1-20261124.json"
    lines = render(RunView.of_file(path), width=80).splitlines()
    assert "  all single_attempt: one attempt was measured, so the spread between runs is" in lines
    assert [line for line in lines if line.startswith("  a ")] == [
        "  a alias_risk: the load keeps the power sensor's rhythm: joules may lie"
    ]


def test_memory_gives_way_to_limits_and_spreads() -> None:
    """Trainings have it where there is room."""
    path = shipped_suites() / "measured" / "ddp_scaling-h200x4-20261121.json"
    lines = render(RunView.of_file(path), width=80).splitlines()
    assert "point          tok/s       speedup  expected     mJ/token  verdict" in lines
    assert re.search("^point .* memory ", render(RunView.of_file(path), width=120), re.MULTILINE)


def test_an_absent_package_is_named_with_its_remedy_alone() -> None:
    """Not once more as a kind that was left out."""
    path = shipped_suites() / "measured" / "tp_scaling-h100x1-20261123.json"
    words = _words(render(RunView.of_file(path), width=80).partition("Not run")[2].partition("verdict:")[0])
    assert words.startswith("2 GPUs (1 here), 4 GPUs (1 here): left out of the plan engine tensorrt_llm, TP 1: backend")


@pytest.mark.parametrize(
    ("name", "head", "row"),
    [
        ("turns_file-h200x1-20261122", "point tok/s per GPU switch of a turn", "grpo 21,681 495.7 ms 26.2 %"),
        (
            "fsdp_largest_by_allocator-h100x1-20261124",
            "point tok/s batch per GPU memory mJ/token flags",
            "largest 7,272 3 67.88 GiB 94.04 a",
        ),
        ("ddp_scaling-h100x1-20261124", "point tok/s memory mJ/token flags", "weak 6,539 59.91 GiB 102 a b"),
        (
            "checkpoint_adapters-h100x1-20261124",
            "point save MB/s load size flags",
            "adapters 344.7 385.3 MB/s 3.266 MiB a b",
        ),
        (
            "prefill_decode-h200x1-20261125",
            "point tok/s TTFT p99 TPOT p99 prefill mJ decode mJ mJ/token",
            "memory_bound 2,958 26.82 ms 5.383 ms 29.37 182.2 183.1",
        ),
        (
            "pipeline_scaling_1f1b-h100x2-20261125",
            "point tok/s speedup waits memory mJ/token flags",
            "PP 2 14,650 1.85 8.4 % 29.32 GiB 90.39 a",
        ),
        (
            "evaluation_trained-h100x1-20261124",
            "point tok/s evaluation memory mJ/token verdict",
            "trained_generation 9,339 30.4 % 20.26 GiB 73.04 -",
        ),
    ],
)
def test_what_a_suite_was_made_to_find_out_stands_beside_the_throughput(name: str, head: str, row: str) -> None:
    """A turn's switch, a batch size that was found, joules of both phases; not a batch size that the suite gives.

    How long GPUs wait stands in tables of pipelines alone.

    Requests of memory_bound end together, so their percentiles are one: those beside it differ, and all are shown.
    """
    text = render(RunView.of_file(shipped_suites() / "measured" / f"{name}.json"), width=80)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert head in lines
    assert row in lines


def test_the_verdict_stands_first_with_what_was_judged(results: Results) -> None:
    """By hand from the fixture: 6 ratios, 3 limits, 3 comparisons, 2 checks of the node."""
    judged = "9 of 14 expectations judged: 4 pass, 3 fail, 2 inconclusive; 1 has no row for h200; 4 not measured"
    assert _words(_render(results)).startswith(f"tp_scaling on h200: fail {judged} ")


def test_the_first_line_counts_predictions_and_provisional_rows(results: Results) -> None:
    """One ratio is judged by the rates of a run, another and a limit by rows of one and of two hosts."""
    first, second, *_ = (row for row in results.scaling if row.verdict in {"pass", "fail"} and row.expected)
    assert first.expected is not None
    assert second.expected is not None
    by_row = dataclasses.replace(second, expected=dataclasses.replace(second.expected, hosts=1))
    rest = [row for row in results.scaling if row not in (first, second)]
    check, *checks = results.checks
    by_check = dataclasses.replace(check, hosts=2)
    for run, words in ((None, ""), ("earlier", " from rates of earlier"), (results.run_id, " from rates of this run")):
        predicted = dataclasses.replace(first.expected, table="prediction", rates_run=run)
        rows = (dataclasses.replace(first, expected=predicted), by_row, *rest)
        changed = dataclasses.replace(results, scaling=rows, checks=(by_check, *checks))
        assert f"judged (1 by prediction{words}, 2 by provisional rows): 4 pass" in _words(_render(changed))


def test_one_row_a_point_with_what_is_expected(results: Results) -> None:
    """A row has throughput and ratio with their spreads, the limit, joules of a token, verdict and flags."""
    rows = [" ".join(line.split()) for line in _render(results).splitlines() if line.startswith("TP ")]
    assert rows == [
        "TP 1 12,346 ±55 1 (baseline) - 12.35 ±0.25 fail",
        "TP 2 0.4321 1.900 ±0.024 ≥ 1.805 - missing a b",
        "TP 4 - - ≥ 1.805 - failed",
        "TP 5 - - ≥ 1.805 - missing",
    ]


def test_columns_without_content_are_left_out() -> None:
    """A node check has neither speedups nor tokens; shared axes are stated once."""
    path = shipped_suites() / "measured" / "node_check-h200x4-20261121.json"
    text = render(RunView.of_file(path), width=80)
    assert not re.search(r"^point .*(speedup|energy|flags)", text, re.MULTILINE)
    assert len(re.findall("torch$", text, re.MULTILINE)) == 1


@pytest.mark.parametrize("width", [80, 160])
def test_every_point_and_its_reason_is_there(results: Results, width: int) -> None:
    """Skipped, failed and missing points are never dropped, and what failed comes with a next step."""
    text = _render(results, width=width)
    for label in short_labels(results.points, with_benchmark=False).values():
        assert label in text
    words = _words(text)
    for reason in ("needs 8 GPUs, found 4", "not measured", "out_of_memory: tried", "next: use a smaller batch"):
        assert reason in words


@pytest.mark.parametrize("value", [[], {}])
def test_a_setting_of_another_kind_is_no_error(results: Results, value: object) -> None:
    """As a results.json may have it that somebody else wrote."""
    points = tuple(
        dataclasses.replace(point, settings={**point.settings, "strategy": value}) for point in results.points
    )
    assert _render(dataclasses.replace(results, points=points)) == _render(results)


def test_a_figure_of_one_gpu_says_so_in_every_table() -> None:
    """Two GPUs make twice as many tokens."""
    path = shipped_suites() / "measured" / "turns_two-h200x2-20261122.json"
    text = render(RunView.of_file(path), width=80, detail=True)
    assert "full          2    1 of 1  14,252 tok/s per GPU  816.8 W" in text


def test_no_table_stands_twice(results: Results) -> None:
    """With every table the short ones, which those hold, are left out."""
    lines = _render(results, detail=True).splitlines()
    titles = [line.partition(" of ")[0] for line in lines if line.startswith(("Comparisons", "Claims", "Job"))]
    assert titles == ["Comparisons"]


def test_what_is_saved_says_so_beside_what_is_loaded() -> None:
    """Both are bytes per second."""
    path = shipped_suites() / "measured" / "checkpoint_whole-h200x1-20261125.json"
    lines = render(RunView.of_file(path), width=80).splitlines()
    assert ["point", "save", "MB/s", "load", "size"] in [line.split() for line in lines]


def test_a_source_of_several_claims_stands_once() -> None:
    """Below the last of them."""
    path = shipped_suites() / "measured" / "train_strategies-h200x4-20261126.json"
    lines = render(RunView.of_file(path), width=80).splitlines()
    first = next(
        number
        for number, line in enumerate(lines)
        if line.startswith("adapters ddp   above 2 x copies ddp   1.452x  open")
    )
    assert lines[first + 1].startswith("adapters fsdp  above 2 x copies fsdp  1.286x  open")
    assert lines[first + 2].startswith("    multi-GPU fine-tuning guide: LoRA")


def test_flags_are_explained_once(results: Results) -> None:
    """Each has one line of its meaning; flags of the joules stand only where joules of a token or sample do."""
    words = _words(_render(results))
    assert words.count("single_attempt: one attempt was measured, so the spread between runs is unknown") == 1


def test_narrow_terminals_raise_nothing(results: Results) -> None:
    """A width that no table fits stacks the cells."""
    shown = "".join(_render(results, width=20).rpartition("verdict: ")[2].split())
    assert shown == f"fail-{''.join(results.reason.split())}"


@pytest.mark.parametrize("term", ["xterm-256color", "dumb", ""])
def test_colour_adds_no_word(results: Results, monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    """Without its escape codes, the coloured report is the plain one, whatever the environment says."""
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "40")
    coloured = _render(results, color=True)
    assert "\x1b[31mfail" in coloured
    assert _render(results) == _ANSI.sub("", coloured)


def test_plain_report_has_no_escape_code_even_from_a_worker(hostile: Results) -> None:
    """Control characters and text that turns direction are removed; rich's markup is shown as plain text."""
    text = _render(hostile, detail=True)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "[bold]x[/bold]" in text


def test_last_line_names_every_verdict(empty: Results, verdicts: tuple[Verdict, ...]) -> None:
    """Also of a run that shows nothing else."""
    for verdict in verdicts:
        text = _render(dataclasses.replace(empty, verdict=verdict))
        words = verdict.replace("_", " ")
        head = f"suite on cpu: {words}\nnothing is expected\nrun run\n{sentence(empty.provenance)}\n"
        assert text == f"{head}\nverdict: {words} - nothing was measured\n"


def test_an_undecided_row_names_the_attempts_that_would_decide_it(results: Results) -> None:
    """The step names a number of attempts, a limit too near the figure, or a second attempt."""
    decision = Decision(num_attempts=3, p_pass=0.2, p_fail=0.3, pass_level=0.01, fail_level=0.01)
    (row,) = [row for row in results.scaling if row.verdict == "inconclusive"]
    aliased = tuple(dataclasses.replace(point, flags=("alias_risk",)) for point in results.points)
    shown = []
    for more, points in (
        (dataclasses.replace(decision, attempts_to_decide=9), results.points),
        (decision, results.points),
        (dataclasses.replace(decision, is_final=True), results.points),
        (dataclasses.replace(decision, is_final=True), aliased),
        (dataclasses.replace(decision, num_attempts=1), results.points),
    ):
        rows = (dataclasses.replace(row, decision=more),)
        only = dataclasses.replace(results, points=points, scaling=rows, checks=(), comparisons=(), node=())
        text = _words(_render(only))
        shown.append(text.partition("because inconclusive next: ")[2].partition(" Not ")[0])
    assert shown == [
        "allow more attempts: --set max_attempts=9",
        "the figure lies too near its limit: find what holds it back, or move the limit",
        "more attempts do not decide it: compare ratios on the same boards, or move the limit",
        "more attempts do not decide it: dither avoids aliasing, --set dither_ms=20; or move the limit",
        "measure two attempts or more: --attempts 2, or attempts of the benchmark",
    ]


def test_an_undecided_row_that_time_ran_out_for_asks_for_the_rest(results: Results) -> None:
    """The step concerns the point or its baseline, which lacks attempts that the suite wants."""
    (row,) = [row for row in results.scaling if row.verdict == "inconclusive"]
    decision = Decision(num_attempts=1, p_pass=0.2, p_fail=0.3, pass_level=0.01, fail_level=0.01)
    baseline, point, *_ = [point.id for point in results.points if point.status == "ok"]
    rows = (dataclasses.replace(row, decision=decision, point_id=point, baseline_id=baseline),)
    options = ("--time-limit 20m",)
    measured = tuple(each for each in results.points if each.status != "missing")
    alone = dataclasses.replace(
        results, points=measured, scaling=rows, checks=(), comparisons=(), node=(), options=options
    )
    step = "next: finish the run, which has the same time again: pybench run --resume RUN"
    assert step not in _words(_render(alone))
    for short in (point, baseline):
        points = tuple(
            dataclasses.replace(each, flags=("fewer_attempts",)) if each.id == short else each for each in measured
        )
        assert step in _words(_render(dataclasses.replace(alone, points=points)))


@pytest.mark.parametrize(
    ("options", "attempts", "step"),
    [
        ((), 1, "finish the run: pybench run --resume RUN"),
        (("--time-limit 20m",), 1, "finish the run, which has the same time again: pybench run --resume RUN"),
        (("--time-limit 1s",), 0, "run it anew with a longer --time-limit: no attempt ended in this one"),
    ],
)
def test_what_was_not_measured_has_the_step_that_ends_it(
    results: Results, options: tuple[str, ...], attempts: int, step: str
) -> None:
    """A resumed run has the limit of its beginning: where nothing fits, it ends as it did."""
    points = tuple(
        dataclasses.replace(point, status="missing", reason="not measured", attempts=attempts, metrics={})
        for point in results.points[:2]
    )
    cut = dataclasses.replace(
        results, points=points, scaling=(), checks=(), comparisons=(), node=(), jobs=(), claims=(), options=options
    )
    text = _words(_render(cut)).partition("What did not pass ")[2].partition(" verdict:")[0]
    assert text.endswith(f"not measured next: {step}")


def test_attempts_of_the_command_line_are_raised_there(results: Results) -> None:
    """No suite has more than --attempts gives."""
    (row,) = [row for row in results.scaling if row.verdict == "inconclusive"]
    decision = Decision(num_attempts=2, p_pass=0.2, p_fail=0.3, pass_level=0.01, fail_level=0.01, attempts_to_decide=9)
    rows = (dataclasses.replace(row, decision=decision),)
    cut = dataclasses.replace(results, scaling=rows, checks=(), comparisons=(), node=(), options=("--attempts 2",))
    assert "next: measure more attempts: --attempts 9" in _words(_render(cut))


def test_an_undecided_row_beside_another_process_asks_for_its_end(results: Results) -> None:
    """More attempts beside it would show nothing."""
    (row,) = [row for row in results.scaling if row.verdict == "inconclusive"]
    beside = next(point for point in results.points if point.status == "ok")
    points = tuple(
        dataclasses.replace(each, flags=("not_alone",)) if each is beside else each for each in results.points
    )
    alone = dataclasses.replace(
        results, scaling=(dataclasses.replace(row, point_id=beside.id),), checks=(), comparisons=()
    )
    text = _words(_render(dataclasses.replace(alone, points=points)))
    step = "next: end the other process on the GPU, or wait for it, and measure again"
    assert step in text
    assert step not in _words(_render(alone))


@pytest.mark.parametrize(
    ("verdict", "flags", "first"),
    [
        ("pass", (), ""),
        ("no_expectation", (), ""),
        # expect takes no run that failed or is open.
        ("inconclusive", (), "when its other rows pass, "),
        ("inconclusive", ("single_attempt",), "measure two attempts or more, then "),
    ],
)
def test_a_table_without_a_figure_has_how_to_write_one_once(
    results: Results, verdict: Verdict, flags: tuple[str, ...], first: str
) -> None:
    """Other reasons and unmeasured points have no such step."""
    step = f"next: {first}write this machine's rows: pybench expect --from RUN"
    (row,) = [row for row in results.scaling if row.verdict == "pass"]
    reasons = ("table a has no figure for this point on h100", "table b has no figure for this point on h100", "alone")
    rows = tuple(dataclasses.replace(row, verdict="no_expectation", reason=reason) for reason in reasons)
    points = tuple(dataclasses.replace(point, flags=flags) for point in results.points)
    cut = dataclasses.replace(results, verdict=verdict, points=points, scaling=rows, checks=(), comparisons=(), node=())
    text = _words(_render(cut)).partition("Not judged ")[2].partition(" Not run")[0]
    label = text.partition(":")[0]
    assert text == f"{label}: {reasons[0]} {label}: {reasons[1]} {step} {label}: alone"
    unread = dataclasses.replace(cut, points=tuple(dataclasses.replace(point, metrics={}) for point in points))
    assert "write this machine's rows" not in _words(_render(unread))


def test_what_the_plan_leaves_out_stands_once(results: Results) -> None:
    """And its points are not listed again; what can't run for another reason is."""
    axes: dict[str, AxisValue] = {"backend": "torch", "tensor_parallel": 16}
    left_out = dataclasses.replace(results.points[-1], id="x", axes=axes, reason="left out by you")
    shown = dataclasses.replace(results, left_out=("16 GPUs (4 here)",), points=(*results.points, left_out))
    text = _words(_render(shown))
    assert "Not run 16 GPUs (4 here): left out of the plan decode TP 8: needs 8 GPUs, found 4" in text
    assert "left out by you" not in text
