"""What keeps a run from a pass, as a reader sees it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybench.core.lookup import NO_TABLE
from pybench.model.results import CheckResult, NodeCheck, Results
from pybench.model.suite import Benchmark, Comparison, Effort
from pybench.model.verdict import Decision
from pybench.report.run.findings import Finding, each_step_once, findings, not_judged
from pybench.report.run.view import RunView
from tests.builders import CHECK, MANIFEST, NODE_CHECK, POINT_RESULT, RESULTS, SCALING, estimate

_UNDECIDED = Decision(num_attempts=2, p_pass=0.2, p_fail=0.3, pass_level=0.01, fail_level=0.01)


def _finding(reason: str, step: str | None) -> Finding:
    return Finding("missing", reason, ("a",), step)


def test_a_step_stands_below_the_last_of_the_findings_it_follows() -> None:
    """Where another step comes between, it is repeated: a reader would take the other for it."""
    found = (
        _finding("one", "finish the run"),
        _finding("two", "finish the run"),
        _finding("three", "write rows"),
        _finding("four", None),
        _finding("five", "finish the run"),
    )
    shown = each_step_once(found)
    assert [finding.step for finding in shown] == [None, "finish the run", "write rows", None, "finish the run"]
    assert [finding.reason for finding in shown] == ["one", "two", "three", "four", "five"]
    assert each_step_once(()) == ()


def _run(*benchmarks: str, options: tuple[str, ...] = ()) -> Results:
    """One measured point of each benchmark."""
    points = tuple(replace(POINT_RESULT, id=f"{name}[gpus=2]", benchmark=name) for name in benchmarks)
    return replace(RESULTS, points=points, options=options)


def _slower(benchmark: str, subject: str, attempts: int | None, num_attempts: int = 2) -> NodeCheck:
    decision = replace(_UNDECIDED, attempts_to_decide=attempts, num_attempts=num_attempts)
    return replace(
        NODE_CHECK,
        name="slowest",
        subject=subject,
        point_id=f"{benchmark}[gpus=2]",
        verdict="inconclusive",
        value=-0.3,
        limit=-0.1,
        reason=f"{subject} of {benchmark} against the others",
        decision=decision,
    )


def test_an_undecided_gpu_is_named_without_the_word_slowest() -> None:
    """Both GPUs of a pair may be undecided, and one is the faster; each has its line."""
    run = replace(_run("matmul"), node=(_slower("matmul", "rank 0", 4), _slower("matmul", "rank 1", 4)))
    found = findings(RunView(results=run))
    assert [finding.subjects for finding in found] == [("rank 0 in matmul",), ("rank 1 in matmul",)]
    hot = replace(run.node[0], name="temperature", decision=None)
    (finding,) = findings(RunView(results=replace(run, node=(hot,))))
    assert finding.subjects == ("rank 0 temperature in matmul",)


def test_attempts_of_the_command_line_are_one_number_for_all() -> None:
    """The most that any row needs, printed once: --attempts is of the whole run. Rows of one attempt are in it, too."""
    node = (
        _slower("matmul", "rank 0", 4),
        _slower("matmul", "rank 1", None),
        _slower("memory", "rank 0", 17),
        _slower("memory", "rank 1", None, num_attempts=1),
    )
    run = replace(_run("matmul", "memory", options=("--attempts 2",)), node=node)
    shown = each_step_once(findings(RunView(results=run)))
    assert [finding.subjects[0] for finding in shown] == [
        *("rank 0 in matmul", "rank 0 in memory", "rank 1 in memory", "rank 1 in matmul")
    ]
    assert [finding.step for finding in shown] == [
        None,
        None,
        "measure more attempts: --attempts 17",
        "the figure lies too near its limit: find what holds it back, or move the limit",
    ]


def test_max_attempts_are_one_number_for_each_benchmark() -> None:
    """A suite sets them there: of checks of the node as of the suite's own rows."""
    row = replace(SCALING, benchmark="decode", point_id="decode[gpus=2]", verdict="inconclusive", reason="open")
    rows = [replace(row, metric=metric, decision=replace(_UNDECIDED, attempts_to_decide=attempts))
            for metric, attempts in (("ttft_s", 5), ("tpot_s", 9))]  # fmt: skip
    node = tuple(_slower("matmul", f"rank {rank}", attempts) for rank, attempts in enumerate((3, 4)))
    shown = each_step_once(findings(RunView(results=replace(_run("decode", "matmul"), scaling=tuple(rows), node=node))))
    assert [(finding.subjects, finding.step) for finding in shown] == [
        (("decode ttft_s", "decode tpot_s"), "allow more attempts: --set benchmark.decode.max_attempts=9"),
        (("rank 0 in matmul",), None),
        (("rank 1 in matmul",), "allow more attempts: --set benchmark.matmul.max_attempts=4"),
    ]


def _open(metric: str, reason: str) -> CheckResult:
    return replace(CHECK, metric=metric, point_id="decode[gpus=2]", verdict="no_expectation", reason=reason)


def test_rows_of_one_point_that_are_not_judged_for_two_reasons_name_their_metrics() -> None:
    """The throughput, which a table may come to have, and joules, which are not measured here."""
    run = _run("decode")
    point = replace(run.points[0], metrics={"output_tokens_per_s": estimate(1.0), "ttft_s": estimate(1.0)})
    no_row = "table t has no figure for this point on cpu"
    tokens, joules = _open("output_tokens_per_s", no_row), _open("energy_j_per_output_token", "no driver")
    run = replace(run, points=(point,), checks=(joules, tokens), verdict="no_expectation")
    assert [(found.subjects, found.reason, found.step) for found in not_judged(RunView(results=run))] == [
        (("decode energy_j_per_output_token",), "no driver", None),
        (("decode output_tokens_per_s",), no_row, "write this machine's rows: pybench expect --from RUN"),
    ]
    alike = replace(run, checks=(tokens, replace(tokens, metric="ttft_s")))
    assert [found.subjects for found in not_judged(RunView(results=alike))] == [("decode",)]


def test_a_comparison_with_what_the_profile_omits_is_named() -> None:
    """Unless no point of its benchmark was measured."""
    below = Comparison(metric="ttft_s", order="below", other="whole")
    decode = Benchmark(name="decode", workload="generate", settings={}, axes={}, effort=Effort(), expectations=(below,))
    suite = replace(MANIFEST.suite, benchmarks=(decode,), profile="cpu", omitted=("whole",))
    view = RunView(results=_run("decode"), manifest=replace(MANIFEST, suite=suite))
    (found,) = not_judged(view)
    assert found.text() == "decode ttft_s: profile cpu omits whole, so nothing is compared with it"
    assert not_judged(replace(view, results=_run("train"))) == ()


@pytest.mark.parametrize(("flags", "first"), [((), ""), (("single_attempt",), "measure two attempts or more, then ")])
def test_a_ratio_without_a_table_has_the_way_to_one(flags: tuple[str, ...], first: str) -> None:
    """A suite of one's own often begins without."""
    run = _run("decode")
    points = (replace(run.points[0], flags=flags, metrics={"output_tokens_per_s": estimate(1.0)}),)
    row = replace(SCALING, point_id="decode[gpus=2]", verdict="no_expectation", reason=NO_TABLE, speedup=1.9)
    (found,) = not_judged(RunView(results=replace(run, points=points, scaling=(row,), verdict="no_expectation")))
    assert found.step == (
        f'{first}to judge it, pybench expect --from RUN -o expected/NAME.toml, then table = "NAME" in the suite'
    )
