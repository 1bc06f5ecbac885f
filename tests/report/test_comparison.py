"""What ``pybench compare`` prints at 80 columns."""

from __future__ import annotations

import dataclasses

from pybench.model.figures import RunFigures
from pybench.nightly.comparison import compare
from pybench.nightly.comparison_text import render
from tests.runs_against_runs import point, run, scaled

STEADY = (100.0, 100.1, 99.9)


def shown(now: object, *before: object, **options: object) -> str:
    return render(compare(now, before), (*before, now), **options)  # type: ignore[arg-type]


def test_rows_stand_by_importance_with_the_verdict_first() -> None:
    """Per cent with an interval and the difference in the metric's own unit; unchanged rows are counted."""
    energy = {"energy_j_per_output_token": (0.1612, 0.1611, 0.1613)}
    dearer = {"energy_j_per_output_token": (0.1700, 0.1701, 0.1699)}
    then = run(
        point("decode[tensor_parallel=1]", axes={"tensor_parallel": 1}, medians={**scaled(1, STEADY), **energy}),
        point("decode[tensor_parallel=2]", axes={"tensor_parallel": 2}, medians=scaled(1.3, STEADY)),
        point("decode[tensor_parallel=4]", axes={"tensor_parallel": 4}, medians=scaled(1.6, STEADY)),
        run_id="then",
    )
    now = run(
        point("decode[tensor_parallel=1]", axes={"tensor_parallel": 1}, medians={**scaled(0.9, STEADY), **dearer}),
        point("decode[tensor_parallel=2]", axes={"tensor_parallel": 2}, medians=scaled(1.3, STEADY)),
        point("decode[tensor_parallel=4]", axes={"tensor_parallel": 4}, medians={}, absence="8 GPUs wanted, 4 here"),
    )
    assert shown(now, then) == (
        "s: differs\n"
        "run now against then\n"
        "next: repeat the reference (pybench run SUITE --aa 5), then compare with\n"
        "  --history of their folder, or with several references: how far equal runs\n"
        "  differ on this machine decides\n"
        "\n"
        "differs: 2 rows\n"
        "point  metric          before           now        change     difference\n"
        "────────────────────────────────────────────────────────────────────────\n"
        "TP 1   speed        100 tok/s      90 tok/s  -10.0 % ±0.2      -10 tok/s\n"
        "TP 1   energy  161.2 mJ/token  170 mJ/token  +5.5 % ±0.14  +8.8 mJ/token\n"
        "\n"
        "not measured: 1 row that a reference has\n"
        "  TP 4 (speed): 8 GPUs wanted, 4 here\n"
        "\n"
        "verdict: differs - of 4 rows: 2 differs, 1 not measured, 1 unchanged; smallest\n"
        "  effect 1 %\n"
    )


def test_an_interval_that_would_reach_below_nothing_has_both_ends() -> None:
    """A speed does not fall by more than all of it: ±360 would."""
    wide, steady = {"output_tokens_per_s": (60.0, 140.0)}, {"output_tokens_per_s": (99.9, 100.1)}
    text = shown(run(point("decode", medians=wide)), run(point("decode", medians=steady), run_id="then"))
    (line,) = (line for line in text.splitlines() if line.startswith("decode "))
    assert "-8.3 % [-99.6 %, +19847.1 %]" in line
    assert "±" not in line


def test_two_throughputs_of_a_training_have_two_words() -> None:
    """Tokens are its speed; its samples are named."""
    both = {"tokens_per_s": STEADY, "samples_per_s": (9.99, 10.0, 10.01)}
    lines = shown(run(point(medians=both)), run(point(medians={}), run_id="then")).splitlines()
    assert "  decode: speed, samples" in lines


def test_what_differs_is_named_with_the_way_on() -> None:
    """No row is shown."""
    text = shown(run(point(), driver='"580.2"'), run(point(), run_id="then"))
    assert text.splitlines()[:4] == [
        "s: incomparable",
        "run now against then",
        "differs: driver: 580.1 -> 580.2",
        "next: compare runs that agree in these, or allow it: --across driver",
    ]
    assert text.splitlines()[-1] == "verdict: incomparable - driver: 580.1 -> 580.2"


def test_every_difference_has_the_option_that_allows_it() -> None:
    """Quoted for a shell; a group's word for more than three of its keys; of a fingerprint alone there is none."""

    def step(now: RunFigures) -> str:
        text = " ".join(shown(now, run(point(), run_id="then")).split())
        return text.partition(" next: ")[2].partition(" verdict: ")[0]

    agreeing, driver = "compare runs that agree in these", {"driver": '"580.2"'}
    assert step(run(point(), **driver, cpu='"B"')) == f"{agreeing}, or allow them: --across driver --across cpu"
    few, more = ({f"$NCCL_{n}": "1" for n in range(number)} for number in (3, 4))
    assert step(run(point(), **driver, **few)).endswith(
        "allow them: --across driver --across '$NCCL_0' --across '$NCCL_1' --across '$NCCL_2'"
    )
    assert step(run(point(), **driver, **more)).endswith("allow them: --across driver --across environment")
    assert step(dataclasses.replace(run(point()), keys={"machine": "e42f", "suite": "s"})) == agreeing


def test_a_reason_stands_once_with_the_rows_it_is_of() -> None:
    """And no empty column: without a second attempt there is no per cent, and no interval to be narrowed."""
    once = {"output_tokens_per_s": (100.0,), "energy_j_per_output_token": (0.1,)}
    points = [
        point(f"decode[{n}]", axes={"tensor_parallel": n}, medians=once, sm_clock_hz=hz)
        for n, hz in ((1, 1.5e9), (2, 1.8e9), (4, 1.5e9))
    ]
    then = [dataclasses.replace(one, sm_clock_hz=1.5e9) for one in points]
    text = shown(run(*points), run(*then, run_id="then"))
    assert text.splitlines()[4].split() == ["point", "metric", "before", "now", "difference"]
    assert " ".join(text.partition("/token\n ")[2].split()) == (
        "TP 1; TP 4 (speed, energy of each): one attempt has no spread; measure two or more "
        "TP 2 (speed, energy): one attempt has no spread; measure two or more; SM clock 1500 -> 1800 MHz "
        "verdict: undecided - of 6 rows: 6 undecided; smallest effect 1 %"
    )


def test_long_values_are_in_the_head_alone() -> None:
    """The last line has the key."""
    gpus = ", ".join(f'"NVIDIA H200 GPU-{number}cadc31d-bee0"' for number in range(8))
    text = shown(run(point(), gpu=f"[{gpus}]", driver='"580.2"'), run(point(), run_id="then"))
    assert "differs: gpu: " in text
    assert text.splitlines()[-1] == "verdict: incomparable - gpu; driver: 580.1 -> 580.2"


def test_every_row_is_shown_with_detail() -> None:
    """Also those that did not change."""
    steady = point(medians=scaled(1, STEADY))
    text = shown(run(steady), run(steady, run_id="then"), detail=True)
    assert "unchanged: 1 row\n" in text
    assert "+0.00 %" in text


def test_the_last_line_names_three_keys_that_differ() -> None:
    """The others stand above it, a line each."""
    other = {f"$NCCL_{name}": "1" for name in "ABCDE"}
    text = shown(run(point(), **other), run(point(), run_id="then"))
    assert text.count("differs: $NCCL_") == 5
    assert " ".join(text.split()).endswith("$NCCL_C: none -> 1 (and 2 more)")


def test_no_value_that_differs_steers_the_terminal() -> None:
    """A version is whatever a file has."""
    text = shown(run(point(), torch="\x1b]52;c;ZXZpbA==\x1b\\"), run(point(), run_id="then", torch="2.11"))
    assert "torch: 2.11 -> " in text.splitlines()[-1]
    assert "\x1b" not in text


def test_points_without_figures_are_named() -> None:
    """Each reason once, with the points that it is of."""
    absent = {"medians": {}, "absence": "left out by --max-gpus 1"}
    points = [point(f"decode[tensor_parallel={n}]", axes={"tensor_parallel": n}, **absent) for n in (2, 4)]
    text = shown(run(*points, run_id="now"), run(*points, run_id="then"))
    assert "\nno figures of TP 2, TP 4: left out by --max-gpus 1\n" in text
