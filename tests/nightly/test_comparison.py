"""A run against its references."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from pybench.core.keys import run_keys
from pybench.model.errors import UsageError
from pybench.model.figures import FigureKey, SmallestEffects
from pybench.nightly.comparison import compare
from tests.builders import PROVENANCE, RESULTS
from tests.golden_sentences import sentences_of
from tests.runs_against_runs import point, run, scaled

SENTENCES = sentences_of("nightly.comparison")

NARROW = (100.0, 100.1, 99.9)


@pytest.mark.parametrize(
    ("factor", "verdict"), [(0.97, "differs"), (1.03, "improved"), (0.998, "unchanged"), (0.99, "undecided")]
)
def test_the_interval_decides_not_the_ratio(factor: float, verdict: str) -> None:
    """Beyond 1 %, within it, across its limit; attempts are 0.1 % apart."""
    found = compare(run(point(medians=scaled(factor, NARROW))), [run(point(medians=scaled(1, NARROW)), run_id="then")])
    assert [change.verdict for change in found.changes] == [verdict]
    assert found.verdict == verdict


def test_other_runs_of_the_machine_show_the_spread_between_runs() -> None:
    """With one reference: 3 % slower is a regression where runs are 0.2 % apart, and undecided where they are 3 %.

    Runs of another driver show nothing, and neither do two runs.
    """
    now, then = run(point(medians=scaled(0.97, NARROW))), run(point(medians=scaled(1, NARROW)), run_id="then")
    for spread, verdict in ((0.002, "regressed"), (0.03, "undecided")):
        factors = (1 - spread, 1, 1 + spread, 1 + spread, 1, 1 - spread)
        others = [run(point(medians=scaled(f, NARROW)), run_id=f"{n}") for n, f in enumerate(factors)]
        found = compare(now, [then], others=[*others, now, then])
        assert (found.verdict, found.num_between) == (verdict, 6)
        elsewhere = [run(point(medians=scaled(f, NARROW)), run_id=f"{f}", driver="1") for f in factors]
        for few in (elsewhere, others[:2]):
            assert (compare(now, [then], others=few).verdict, compare(now, [then], others=few).num_between) == (
                "differs",
                0,
            )


def test_a_change_has_welchs_interval() -> None:
    """By hand: means of logarithms, sd 0.01 of three each: t(4 degrees, 2.5 %) = 2.7764 times 0.01 sqrt(2/3)."""
    steps = (math.exp(-0.01), 1.0, math.exp(0.01))
    now, then = ({"output_tokens_per_s": tuple(factor * s for s in steps)} for factor in (97.0, 100.0))
    (change,) = compare(run(point(medians=now)), [run(point(medians=then), run_id="then")]).changes
    reach = 2.7764 * 0.01 * math.sqrt(2 / 3)
    assert change.fraction == pytest.approx(-0.03)
    assert change.low == pytest.approx(0.97 * math.exp(-reach) - 1, abs=1e-6)
    assert change.high == pytest.approx(0.97 * math.exp(reach) - 1, abs=1e-6)
    assert change.difference == pytest.approx(-3.0)
    assert change.unit == "tokens/s"


def test_a_run_that_measured_nothing_is_not_measured() -> None:
    """Its software is not known, so it differs in none."""
    silent = run(point(medians={}, absence="not measured"), torch=None)
    found = compare(silent, [run(point(), run_id="then")])
    assert (found.verdict, found.differences) == ("not measured", ())
    assert [(change.verdict, change.reason) for change in found.changes] == [("not measured", "not measured")]


def test_several_references_bring_the_spread_between_runs() -> None:
    """The runs differ by 1 %: one more run may be 3 % below their mean, t(2 degrees) = 4.30."""
    nights = [run(point(medians=scaled(math.exp(x), NARROW)), run_id=str(x)) for x in (-0.01, 0.0, 0.01)]
    (change,) = compare(run(point(medians=scaled(0.97, NARROW))), nights).changes
    assert change.verdict == "undecided"
    reach = 4.3027 * 0.01 * math.sqrt(1 + 1 / 3)
    assert change.high == pytest.approx(0.97 * math.exp(reach) - 1, abs=1e-5)


def test_less_of_a_time_is_better() -> None:
    """And less of a throughput is worse."""
    then = point(medians={"ttft_s": (1.0, 1.001, 0.999), "output_tokens_per_s": NARROW})
    now = point(
        medians={"ttft_s": (0.9, 0.901, 0.899), "output_tokens_per_s": scaled(0.9, NARROW)["output_tokens_per_s"]}
    )
    found = compare(run(now), [run(then, run_id="then")])
    assert {change.row.metric: change.verdict for change in found.changes} == {
        "ttft_s": "improved",
        "output_tokens_per_s": "differs",
    }
    assert found.changes[0].verdict == "differs"


def test_a_vanished_point_is_not_measured_with_its_reason() -> None:
    """Nothing measured is never a pass, whether the point is gone, failed or lost one metric."""
    then = run(
        point("gone"), point("broken"), point("one", medians={"ttft_s": NARROW, "step_s": NARROW}), run_id="then"
    )
    now = run(point("broken", medians={}, absence="out_of_memory: 80 GiB"), point("one", medians={"step_s": NARROW}))
    found = compare(now, [then])
    assert found.verdict == "not measured"
    assert {change.row: change.reason for change in found.changes if change.verdict == "not measured"} == {
        FigureKey("gone", "output_tokens_per_s"): "the suite has no such point now",
        FigureKey("broken", "output_tokens_per_s"): "out_of_memory: 80 GiB",
        FigureKey("one", "ttft_s"): "this metric was not measured",
    }


def test_a_new_point_is_listed_and_judges_nothing() -> None:
    """It has no reference yet."""
    found = compare(run(point(), point("new")), [run(point(), run_id="then")], effects=SmallestEffects(default=0.05))
    assert found.added == (FigureKey("new", "output_tokens_per_s"),)
    assert found.verdict == "unchanged"


@pytest.mark.parametrize(
    ("key", "value", "across"),
    [
        ("driver", '"580.2"', "driver"),
        ("image", '["sha256:1"]', "image"),
        ("image", '["sha256:1"]', "software"),
        ("torch", "2.12.0", "torch"),
        ("torch", "2.12.0", "packages"),
        ("$NCCL_ALGO", "Ring", "environment"),
        ("$NCCL_ALGO", "Ring", "software"),
        ("power_limit", "[500.0]", "power_limit"),
        ("gpu", '["NVIDIA H200 GPU-1"]', "gpu"),
    ],
)
def test_a_key_that_differs_is_named_and_may_be_allowed(key: str, value: str, across: str) -> None:
    """Never a verdict over another machine or software, unless it is wanted."""
    now, then = run(point(), **{key: value}), run(point(), run_id="then")
    found = compare(now, [then])
    assert (found.verdict, found.changes) == ("incomparable", ())
    assert found.differences[0].startswith(f"{key}: ")
    wanted = compare(now, [then], across=[across])
    assert [text.partition(":")[0] for text in wanted.wanted] == [key]
    assert wanted.changes


@pytest.mark.parametrize("key", ["network", "host b"])
def test_another_host_or_network_is_no_software(key: str) -> None:
    now, then = run(point(), **{key: '"a"'}), run(point(), run_id="then", **{key: '"b"'})
    assert compare(now, [then], across=["software", "packages"]).verdict == "incomparable"
    assert compare(now, [then], across=[key]).verdict != "incomparable"


def test_gpus_are_counted_by_kind_where_that_shows_the_difference() -> None:
    """With the beginnings of their UUIDs; whole where these are alike."""
    four = [f"NVIDIA H200 GPU-{number}cadc31d-bee0-4000" for number in range(4)]
    found = compare(run(point(), gpu=json.dumps(four[:2])), [run(point(), run_id="then", gpu=json.dumps(four[2:]))])
    assert found.differences == (SENTENCES["gpus_are_counted_by_kind_where_that"],)
    alike = '["NVIDIA H200 GPU-0cadc31d-beef"]'
    found = compare(run(point(), gpu=json.dumps(four[:1])), [run(point(), run_id="then", gpu=alike)])
    assert found.differences == (SENTENCES["gpus_are_counted_by_kind_where_that_2"],)


def test_how_many_gpus_stand_otherwise_is_a_difference() -> None:
    """Three boards of four with a lowered limit are not one of them."""
    then = run(point(), run_id="then", power_limit="[700.0, 600.0, 600.0, 600.0]")
    found = compare(run(point(), power_limit="[700.0, 700.0, 700.0, 600.0]"), [then])
    assert found.differences == ("power_limit: 1 x 700.0, 3 x 600.0 -> 3 x 700.0, 1 x 600.0",)
    found = compare(run(point(), power_limit="[600.0, 700.0, 600.0, 600.0]"), [then])
    assert found.differences == ("power_limit: 700.0, 600.0 -> 600.0, 700.0",)


def test_what_is_equal_of_all_gpus_counts_once() -> None:
    """Machines of two and of four GPUs differ in ``gpu`` alone."""

    def of(number: int) -> dict[str, str]:
        values = {"gpu": "H200", "power_limit": 700.0, "mig": False, "ecc": None}
        return {name: json.dumps([value] * number) for name, value in values.items()}

    found = compare(run(point(), **of(4)), [run(point(), run_id="then", **of(2))])
    assert found.differences == ("gpu: 2 x H200 -> 4 x H200",)
    lowered = {**of(4), "power_limit": "[700.0, 700.0, 700.0, 600.0]"}
    found = compare(run(point(), **lowered), [run(point(), run_id="then", **of(2))], across=("gpu",))
    assert found.differences == ("power_limit: 700.0 -> 700.0, 600.0",)


def test_folders_of_compiled_code_are_no_keys() -> None:
    """A nightly job has another one each night."""
    fields = {"torch": "2.11.0", "$NCCL_ALGO": "Ring", "$TRITON_CACHE_DIR": "/job/7/triton"}
    keys = run_keys(dataclasses.replace(RESULTS, software_fields=fields))
    assert {name: value for name, value in keys.items() if name in fields} == {"torch": "2.11.0", "$NCCL_ALGO": "Ring"}


def test_the_difference_shows_both_values() -> None:
    """As people write them."""
    found = compare(run(point(), driver='"580.2"'), [run(point(), run_id="then")])
    assert found.differences == ("driver: 580.1 -> 580.2",)


def test_what_one_side_lacks_is_no_difference_where_the_other_has_none() -> None:
    """A machine without a fabric, and a run that recorded none."""
    assert compare(run(point(), fabric="[null]"), [run(point(), run_id="then")]).changes


def test_fingerprints_alone_agree_with_no_fields() -> None:
    """One line, not each field that the older run did not record."""
    older = dataclasses.replace(run(point(), run_id="then"), keys={"machine": "e42f", "software": "4204", "suite": "s"})
    (text,) = compare(run(point()), [older]).differences
    assert text.startswith("machine, software: the reference has a fingerprint, not its fields")


def test_two_builds_of_the_workers_are_not_compared_unless_allowed() -> None:
    """One version may measure differently. Results of earlier versions have no build, and are compared."""
    now, then = run(point(), build="2b"), run(point(), run_id="then", build="1a")
    assert compare(now, [then]).differences == ("build: 1a -> 2b",)
    assert compare(now, [then], across=["build"]).changes
    assert compare(now, [then], across=["software"]).changes
    assert compare(now, [run(point(), run_id="then")]).changes
    keys = run_keys(dataclasses.replace(RESULTS, provenance=dataclasses.replace(PROVENANCE, worker_sha256="ab" * 32)))
    assert keys["build"] == "ab" * 6


def test_a_group_allows_no_machine() -> None:
    """Software that differs on another machine is another machine."""
    found = compare(run(point(), driver='"1"', torch="3"), [run(point(), run_id="then")], across=["software"])
    assert found.differences == ("driver: 580.1 -> 1",)


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        (None, "the suite has no such point now"),
        ("-k 'prefill or large'", "left out by -k 'prefill or large'"),
        ("-k decode", "the suite has no such point now"),
        ("-k '(", "the suite has no such point now"),
        ("-k '('", "the suite has no such point now"),
    ],
)
def test_a_point_that_the_command_line_left_out_has_that_reason(option: str | None, reason: str) -> None:
    """A point that the expression keeps is gone from the suite; an invalid expression explains nothing."""
    (change,) = compare(dataclasses.replace(run(), kept_by=option), [run(point(), run_id="then")]).changes
    assert (change.verdict, change.reason) == ("not measured", reason)


def test_an_unknown_key_is_refused() -> None:
    """With the keys that there are."""
    with pytest.raises(UsageError, match=r"--across drivre: no such key; there are software, packages, .*driver"):
        compare(run(point()), [run(point(), run_id="then")], across=["drivre"])


def test_a_run_is_no_reference_of_itself_and_counts_once() -> None:
    """A run of another machine with the same id is another run."""
    now, then = run(point()), run(point(), run_id="then")
    with pytest.raises(UsageError, match="now is the run itself"):
        compare(now, [then, now])
    with pytest.raises(UsageError, match="then is given twice"):
        compare(now, [then, then])
    other = run(point(), run_id="then", gpu='["NVIDIA H200 GPU-9"]')
    found = compare(now, [then, other])
    assert (found.reference_ids, len(found.left_out)) == (("then",), 1)


def test_other_settings_of_a_point_are_incomparable_by_name() -> None:
    """An id alone proves nothing; other points are compared all the same."""
    then = run(point(), point("other"), run_id="then")
    now = run(point(digest="e", settings={"model": "m", "batch_size": 8}), point("other"))
    effects = SmallestEffects(default=0.05)
    found = compare(now, [then], effects=effects)
    assert [(change.verdict, change.reason) for change in found.changes] == [
        ("incomparable", "batch_size: 4 -> 8"),
        ("unchanged", ""),
    ]
    assert compare(now, [then], across=["settings"], effects=effects).verdict == "unchanged"


def test_settings_that_were_not_recorded_are_no_agreement() -> None:
    """A file of an older pybench has no digest."""
    found = compare(run(point()), [run(point(digest=None), run_id="then")])
    assert [change.reason for change in found.changes] == [SENTENCES["settings_that_were_not_recorded_are"]]


def test_references_that_differ_are_left_out_by_name() -> None:
    """Where others are comparable."""
    nights = [run(point(), run_id="a"), run(point(), run_id="b", driver='"1"')]
    found = compare(run(point()), nights)
    assert found.reference_ids == ("a",)
    assert found.left_out == ("b: driver: 1 -> 580.1",)


def test_nothing_in_common_is_no_pass() -> None:
    """Two runs without a row."""
    assert compare(run(), [run(run_id="then")]).verdict == "incomparable"


def test_zeros_have_no_ratio_unless_equal() -> None:
    """No preemptions then and now; then some."""
    none, some = point(medians={"num_preemptions": (0.0, 0.0)}), point(medians={"num_preemptions": (0.0, 3.0)})
    assert compare(run(none), [run(none, run_id="then")]).verdict == "unchanged"
    (change,) = compare(run(some), [run(none, run_id="then")]).changes
    assert (change.verdict, change.reason) == ("undecided", SENTENCES["zeros_have_no_ratio_unless_equal"])


def test_one_attempt_decides_nothing() -> None:
    """It has no spread."""
    (change,) = compare(run(point(medians=scaled(0.5, (1.0,)))), [run(point(), run_id="then")]).changes
    assert (change.verdict, change.reason) == ("undecided", SENTENCES["one_attempt_decides_nothing"])


def test_a_clock_that_differs_stands_beside_the_change() -> None:
    """With what held it."""
    then = run(point(sm_clock_hz=1.98e9), run_id="then")
    now = run(point(medians=scaled(0.8), sm_clock_hz=1.6e9, held_by=("power limit",)))
    assert [c.reason for c in compare(now, [then]).changes] == [SENTENCES["a_clock_that_differs_stands_beside"]]


def test_what_was_measured_beside_a_foreign_process_is_undecided() -> None:
    """On either side; half the speed is then no regression."""
    slow, then = point(medians=scaled(0.5, NARROW), flags=("not_alone",)), point(medians=scaled(1, NARROW))
    for now, before in ((slow, then), (then, slow)):
        (change,) = compare(run(now), [run(before, run_id="then")]).changes
        assert (change.verdict, change.reason.partition(";")[0]) == (
            "undecided",
            SENTENCES["what_was_measured_beside_a_foreign"],
        )


def test_two_fingerprints_are_not_shown() -> None:
    """Nobody reads two hashes; what differs is in the run folders."""
    keys = {"machine": "e42f", "software": "4204", "suite": "s"}
    older = dataclasses.replace(run(point(), run_id="then"), keys=keys)
    newer = dataclasses.replace(run(point()), keys={**keys, "machine": "aa01"})
    assert compare(newer, [older]).differences == (SENTENCES["two_fingerprints_are_not_shown"],)
