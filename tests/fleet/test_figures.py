"""Nodes and GPUs by their figures, in simulated fleets whose truth is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pybench.core.statistics import spread, units
from pybench.fleet.decision import judge_fleet
from pybench.fleet.figures import Figures, Reading
from pybench.fleet.text import drain_list
from pybench.fleet.values import FleetNode, FleetResult, NodeRun
from pybench.model.figures import FigureKey, PointFigures
from pybench.model.record import GpuState
from tests.fleets import Fleet, named
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("fleet.figures")

FIVE_PERCENT = -math.log(0.95)


def judged(seed: int = 1, num_runs: int = 1, **changed: Any) -> FleetResult:
    return Fleet(**changed).judged(np.random.default_rng(seed), num_runs)


def runs(seed: int = 1, **changed: Any) -> list[NodeRun]:
    return Fleet(**{"num_nodes": 6, **changed}).runs(np.random.default_rng(seed))


def state(result: FleetResult, name: str) -> FleetNode:
    return next(node for node in result.nodes if node.name == name)


def with_points(run: NodeRun, change: Any) -> NodeRun:
    points = tuple(change(point) for point in run.figures.points)
    return replace(run, figures=replace(run.figures, points=points))


def test_a_healthy_fleet_is_healthy() -> None:
    """Sixteen nodes that differ by 0.5 %; each group has its detectable shortfall."""
    result = judged()
    assert (result.state, {node.state for node in result.nodes}) == ("healthy", {"healthy"})
    assert {group.name for group in result.groups} == {"products", "memory", "host copies", "links", "launches"}
    assert all(0.01 < group.detectable_fraction < 0.06 for group in result.groups)


@pytest.mark.no_cover  # draws of what single fleets, below, cover
@pytest.mark.parametrize("seed", range(3))
def test_a_slow_node_is_named_and_nothing_else(seed: int) -> None:
    """4 % in every group; one run makes it suspect, or bad if memory is 5 % below."""
    result = judged(seed, slow={"node07": -math.log(0.96)})
    assert named(result) == {"node07"}
    node = state(result, "node07")
    assert node.state == ("bad" if any(one.is_bad for one in node.symptoms) else "suspect")
    assert [one.group for one in node.symptoms] == ["products", "memory", "host copies", "links", "launches"]
    products = node.symptoms[0]
    assert (products.gpu, products.text) == (None, "4 of its 4 GPUs")
    assert products.fraction == pytest.approx(-0.04, abs=0.015)
    assert products.value is not None
    assert products.usual is not None
    assert products.value / products.usual - 1 == pytest.approx(products.fraction)


def test_two_runs_make_a_node_bad_from_five_percent_on() -> None:
    """8 % slower in both runs; in one of two it is suspect. 3 % in both is within what healthy hosts differ by."""
    slow = {"node03": -math.log(0.92)}
    both = judged(num_nodes=6, num_runs=2, slow=slow)
    assert (both.state, state(both, "node03").state) == ("bad", "bad")
    assert {(one.num_low, one.num_measured) for one in state(both, "node03").symptoms} == {(2, 2)}
    first, second = runs(slow=slow), runs(2)
    again = [replace(run, figures=replace(run.figures, run_id="again")) for run in second]
    assert state(judge_fleet([*first, *again]), "node03").state != "bad"
    assert judged(num_runs=2, slow={"node03": 0.03}, node_sd=0.002).state == "suspect"


def test_a_fleet_of_two_kinds_is_two_groups() -> None:
    """Six of sixteen nodes are 4 % slower: none is named, and a node that is slow among them is."""
    slower = {f"node{number:02}": 0.04 for number in range(1, 7)}
    result = judged(slow=slower)
    assert (named(result), result.state) == (set(), "healthy")
    for group in result.groups:
        assert group.slower == tuple(slower)
        assert group.slower_fraction == pytest.approx(-0.04, abs=0.01)
    assert named(judged(slow={**slower, "node02": 0.14})) == {"node02"}


@pytest.mark.no_cover  # more nodes for code that the tests above cover
def test_a_large_fleet_is_judged_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 nodes with 60 points: values are pulled in a few times for each row, not for each node."""
    calls = []
    pull = spread.pulled_in

    def counted(*arguments: Any) -> list[float]:
        calls.append(1)
        return pull(*arguments)

    for module in (spread, units):
        monkeypatch.setattr(module, "pulled_in", counted)
    random = np.random.default_rng(1)
    (example,) = runs(num_nodes=1)
    points = [replace(example.figures.points[0], id=f"p{n}", digest=f"p{n}") for n in range(60)]

    def node(name: str) -> NodeRun:
        values = 670e12 * np.exp(0.005 * random.standard_normal((60, 3)))
        own = [
            replace(p, medians={"matmul_flops_per_s": tuple(v.tolist())}) for p, v in zip(points, values, strict=True)
        ]
        return NodeRun(node=name, figures=replace(example.figures, points=tuple(own)), uuids=(name,))

    result = judge_fleet([node(f"node{number:03}") for number in range(512)])
    assert len(result.nodes) == 512
    assert len(calls) <= 4 * 60


def test_farther_than_gpus_of_one_node_may_be_needs_no_second_run() -> None:
    """12 %: products may be 10 % apart, memory 5 %."""
    assert state(judged(num_nodes=6, slow={"node03": 0.128}), "node03").state == "bad"


@pytest.mark.no_cover  # draws of what single fleets, below, cover
@pytest.mark.parametrize("seed", range(3))
def test_one_slow_gpu_of_a_node_is_named(seed: int) -> None:
    """By its UUID, and not the node as a whole."""
    result = judged(seed, slow_gpus={("node05", 2): FIVE_PERCENT})
    assert named(result) == {"node05"}
    found = [one for one in state(result, "node05").symptoms if one.group == "products"]
    assert [one.gpu for one in found] == ["GPU 2 (GPU-node05-2)"]


def test_a_very_slow_node_does_not_hide_another() -> None:
    """Of sixteen nodes two are 30 % slow, and one GPU of another is 4 %: it is named, with the distance that it has."""
    result = judged(slow={"node01": 0.36, "node02": 0.36}, slow_gpus={("node05", 2): -math.log(0.96)})
    assert named(result) == {"node01", "node02", "node05"}
    (products,) = [one for one in state(result, "node05").symptoms if one.group == "products"]
    assert products.gpu == "GPU 2 (GPU-node05-2)"
    assert products.fraction == pytest.approx(-0.04, abs=0.015)


def test_how_the_slow_gpu_stood_is_beside_it() -> None:
    """Clock, temperature and what held the clock, where the others' were not so."""

    def stood(run: NodeRun) -> NodeRun:
        usual = GpuState(uuid="", index=0, sm_clock_hz=1.5e9, temperature_c=60.0, held_by=("power limit",))
        states = [replace(usual, uuid=uuid) for uuid in run.uuids]
        if run.node == "node05":
            hot = {"sm_clock_hz": 1.4e9, "temperature_c": 85.0, "held_by": ("power limit", "heat")}
            states[2] = replace(states[2], **hot)  # type: ignore[arg-type]
        return replace(run, states={point.id: tuple(states) for point in run.figures.points})

    result = judge_fleet([stood(run) for run in runs(slow_gpus={("node05", 2): FIVE_PERCENT})])
    texts = {one.text for one in state(result, "node05").symptoms if one.gpu}
    assert texts == {"SM clock 1,400 MHz (others 1,500); 85 °C (others 60); clocks held by heat"}


def test_less_is_better_is_turned() -> None:
    """Launches take 60 % longer on node02: slower by 38 %, farther than any healthy node, but not beyond a half."""

    def late(point: PointFigures) -> PointFigures:
        return replace(point, medians={"launch_s": tuple(1.6 * v for v in point.medians["launch_s"])})

    found = [
        with_points(run, lambda p: late(p) if p.id == "launch" and run.node == "node02" else p)  # noqa: B023
        for run in runs()
    ]
    node = state(judge_fleet(found), "node02")
    assert [one.group for one in node.symptoms] == ["launches"]
    assert node.symptoms[0].fraction == pytest.approx(1 / 1.6 - 1, abs=0.02)
    assert node.symptoms[0].value == pytest.approx(16e-6, rel=0.03)
    assert node.state == "suspect"


def test_two_nodes_are_not_compared() -> None:
    """However far they differ: neither is the usual one."""
    result = judged(num_nodes=2, num_runs=2, slow={"node01": 0.35})
    assert {node.state for node in result.nodes} == {"not compared"}
    assert not [*drain_list(result)]


def test_one_node_alone_is_not_healthy() -> None:
    """It has no others."""
    result = judge_fleet(runs()[:1])
    assert (result.state, result.nodes[0].state) == ("not compared", "not compared")


def test_a_node_without_figures_is_not_healthy() -> None:
    """It was expected, its points were not measured, one group is absent, or somebody else computed beside it."""
    fleet = runs()
    fleet[1] = with_points(fleet[1], lambda p: replace(p, medians={}, absence="the worker was killed"))
    fleet[1] = replace(fleet[1], figures=replace(fleet[1].figures, keys={}))  # no worker has reported any software
    fleet[2] = with_points(fleet[2], lambda p: replace(p, flags=("not_alone",)))
    fleet[3] = with_points(fleet[3], lambda p: replace(p, medians={}) if "memory" in p.id else p)
    result = judge_fleet(fleet, expected=["node09"], refused={"node10": "node10.json: cut"})
    reasons = {node.name: node.reason for node in result.nodes if node.state == "not measured"}
    assert result.state == "not measured"
    assert reasons["node02"] == SENTENCES["a_node_without_figures_is_not"]
    assert "a process of somebody else" in reasons["node03"]
    assert reasons["node04"].startswith("no figure of memory")
    assert (reasons["node09"], reasons["node10"]) == (SENTENCES["a_node_without_figures_is_not_2"], "node10.json: cut")


def test_a_run_that_could_not_be_read_beside_another_of_its_node_is_noted() -> None:
    """The node is judged by the other one: the reader learns that it is by one run less than was given."""
    result = judge_fleet(runs(), refused={"node02": "node02/again: cut"})
    assert (result.state, result.notes) == ("healthy", ("not read: node02/again: cut",))


def test_what_failed_here_and_nowhere_else_is_suspect() -> None:
    """A worker that broke on one node."""
    fleet = runs()
    fleet[1] = with_points(
        fleet[1], lambda p: replace(p, medians={}, num_failed=1, absence="XID 79") if p.id == "burn" else p
    )
    node = state(judge_fleet(fleet), "node02")
    assert (node.state, [one.text for one in node.symptoms]) == ("suspect", ["burn failed: XID 79"])


def test_a_failed_check_of_its_own_makes_a_node_bad() -> None:
    """Whatever its figures are; corrected memory errors make it suspect."""
    fleet = runs()
    fleet[0] = replace(fleet[0], faults=("GPU 1: XID 79 in the kernel's log",))
    fleet[1] = replace(fleet[1], warnings=("GPU 2: corrected ECC errors: 5",))
    result = judge_fleet(fleet)
    assert [(node.name, node.state) for node in result.nodes[:2]] == [("node01", "bad"), ("node02", "suspect")]
    assert result.state == "bad"


def test_unlike_nodes_are_named_and_not_compared() -> None:
    """Unless the key may differ: then one that is slow for its driver is compared."""
    fleet = runs(slow={"node06": 3 * FIVE_PERCENT})
    fleet[5] = replace(fleet[5], figures=replace(fleet[5].figures, keys={"driver": '"570.1"'}))
    apart = judge_fleet(fleet)
    assert (apart.state, state(apart, "node06").state) == ("not compared", "not compared")
    assert "driver: 580.1 -> 570.1" in state(apart, "node06").reason
    allowed = judge_fleet(fleet, across=["driver"])
    assert state(allowed, "node06").state == "bad"
    assert allowed.wanted == ("driver: 580.1 -> 570.1",)


def test_a_node_that_lost_a_gpu_is_not_healthy() -> None:
    """Its points have other ids, so that nothing of it is compared; three names of GPUs are not four."""

    def on(num: int, run: NodeRun, num_listed: int) -> NodeRun:
        own = with_points(run, lambda p: replace(p, id=f"{p.id}[gpus={num}]"))
        return replace(own, figures=replace(own.figures, keys={"gpu": json.dumps(["H100"] * num_listed)}), gpus={})

    four = [on(4, run, 4) for run in runs()]
    lost = judge_fleet([*four[:2], on(3, runs()[2], 3), *four[3:]])
    node = state(lost, "node03")
    assert (node.state, node.reason) == ("not compared", SENTENCES["a_node_that_lost_a_gpu_is_not"])
    idle = judge_fleet([*four[:2], on(3, runs()[2], 4), *four[3:]])
    node = state(idle, "node03")
    assert (node.state, node.reason) == ("not measured", SENTENCES["a_node_that_lost_a_gpu_is_not_2"])
    assert {state(idle, run.node).state for run in (*four[:2], *four[3:])} == {"healthy"}


def test_points_of_other_settings_are_not_compared() -> None:
    """A point measured with another digest is left out, with its name."""
    fleet = runs()
    fleet[2] = with_points(fleet[2], lambda p: replace(p, digest="other") if p.id == "burn" else p)
    result = judge_fleet(fleet)
    assert state(result, "node03").state == "healthy"
    assert result.notes[0].startswith("node03: burn is not compared: settings")


def test_other_suites_and_strangers_are_left_out() -> None:
    """A run of another suite; a run that was given twice; a name of two machines; a machine of two names."""
    fleet = runs()
    fleet[1] = replace(fleet[1], figures=replace(fleet[1].figures, suite="tp_scaling"))
    twin = replace(fleet[2], node="node99")
    stranger = replace(fleet[3], uuids=("GPU-other",), figures=replace(fleet[3].figures, run_id="other"))
    result = judge_fleet([*fleet, fleet[0], twin, stranger])
    reasons = {node.name: node.reason for node in result.nodes if node.state == "not measured"}
    assert reasons["node02"].startswith("its run is of the suite tp_scaling")
    assert reasons["node99"] == SENTENCES["other_suites_and_strangers_are_left"]
    assert reasons["node04"].startswith("two machines have this name (GPU-node04-0 and GPU-other)")
    assert result.notes == (SENTENCES["other_suites_and_strangers_are_left_2"],)


def test_one_value_against_three() -> None:
    """Three at 0, 1 and 2 %, one at -7 %: 8 % below their mean, t = 0.08 / (0.01 sqrt(4/3)) = 6.93, 2 degrees: 1 %."""
    row = FigureKey("p", "matmul_flops_per_s")
    nodes = {name: Reading((value,)) for name, value in (("a", 0.0), ("b", 0.01), ("c", 0.02), ("d", -0.07))}
    (distance,) = Figures({row: nodes}).distances["d", "products"]
    assert distance.deviation == pytest.approx(-0.08)
    assert distance.p == pytest.approx(0.01010, rel=0.01)


def test_attempts_that_scatter_make_a_figure_unsure() -> None:
    """The same distance, with a standard error of 8 % by the node's own attempts, shows nothing."""
    row = FigureKey("p", "matmul_flops_per_s")
    nodes = {name: Reading((value,)) for name, value in (("a", 0.0), ("b", 0.01), ("c", 0.02))}
    (distance,) = Figures({row: {**nodes, "d": Reading((-0.07,), 0.08**2)}}).distances["d", "products"]
    assert distance.p > 0.2


def of_suite(run: NodeRun, suite: str) -> NodeRun:
    return replace(run, figures=replace(run.figures, suite=suite, run_id=f"{run.figures.run_id}-{suite}"))


@pytest.mark.parametrize(
    ("num_checked", "suite"), [(6, "node_check"), (3, "node_check"), (2, "ddp_scaling"), (0, "ddp_scaling")]
)
def test_nodes_are_judged_by_their_own_check(num_checked: int, suite: str) -> None:
    """Where half of them have one, whatever else they ran; what is not looked at is named."""
    others = [of_suite(run, "ddp_scaling") for run in runs()]
    checked = [of_suite(run, "node_check") for run in runs()[:num_checked]]
    result = judge_fleet([*others, *checked])
    assert result.suite == suite
    other, number = ("ddp_scaling", num_checked) if suite == "node_check" else ("node_check", num_checked)
    unjudged = [note for note in result.notes if "not judged" in note]
    assert unjudged == ([f"{number} runs of {other} not judged; give runs of one suite"] if number else [])
