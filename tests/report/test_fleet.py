"""What ``pybench fleet check`` prints at 80 columns."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import numpy as np

from pybench.fleet.decision import judge_fleet
from pybench.fleet.text import drain_list, render
from pybench.fleet.values import FleetNode, FleetResult, NodeRun
from pybench.model.figures import NO_MEDIANS
from tests.fleets import Fleet


def runs(**changed: object) -> list[NodeRun]:
    return Fleet(num_nodes=6, **changed).runs(np.random.default_rng(1))  # type: ignore[arg-type]


def shown(result: FleetResult, fleet: list[NodeRun], width: int = 80) -> list[str]:
    return render(result, [run.figures for run in fleet], width=width).splitlines()


def test_every_state_has_its_lines() -> None:
    """The worst first, nodes of one reason in one line, the next step, the count last; nothing wider than asked for."""
    fleet = runs(slow={"node02": 0.2}, slow_gpus={("node04", 1): 0.06})
    fleet[5] = replace(fleet[5], figures=replace(fleet[5].figures, keys={"driver": '"570.1"'}))
    result = judge_fleet(fleet, expected=["node08", "node09"])
    for width in (60, 80, 200):
        lines = shown(result, fleet, width)
        assert max(map(len, lines[:-1])) <= width
    text = "\n".join(shown(result, fleet, 200))
    assert text.startswith("node_check on 8 nodes: bad\n5 runs of driver 580.1; smallest effect 1 %\n")
    places = [
        text.index(line)
        for line in (
            "\nbad: node02\n  products 1",
            "\nnot measured: node[08-09]: no run of it was given",
            "\nnot compared: node06: unlike the compared nodes in driver: 580.1 -> 570.1",
            "\nhealthy: node[01,03,05]",
            "\nnext: --drain-list",
            "\nverdict: bad - of 8 nodes: ",
        )
    ]
    assert places == sorted(places)
    assert "GPU 1 (GPU-node04-1): memory 5." in text


def test_the_first_line_has_what_each_node_has() -> None:
    """GPUs of one kind with the fewest and the most that a node has; kinds are alternatives.

    Both may differ with ``--across gpu`` alone.
    """
    fleet = runs()[:4]

    def head(*gpus: list[str], across: tuple[str, ...] = ()) -> str:
        own = [
            replace(one, figures=replace(one.figures, keys={"gpu": json.dumps(names), "driver": f'"{number}"'}))
            for number, (one, names) in enumerate(zip(fleet, gpus, strict=True))
        ]
        return shown(judge_fleet(own, across=("driver", *across)), own)[1]

    assert head(*[["H200"] * 2] * 4) == "4 runs of 2 x H200; smallest effect 1 %"
    counted = head(*(["H200"] * count for count in (1, 2, 2, 4)), across=("gpu",))
    assert counted == "4 runs of 1 to 4 x H200; smallest effect 1 %"
    kinds = head(["H200"], ["H100"], ["H200"], ["H100"], across=("gpu",))
    assert kinds == "4 runs of 1 x H200 or 1 x H100; smallest effect 1 %"


def test_the_next_step_follows_the_reason() -> None:
    """A file without medians needs its run's folder; a node without a run is measured; both are named for both."""
    fleet = runs()
    points = tuple(replace(point, medians={}, absence=NO_MEDIANS) for point in fleet[5].figures.points)
    fleet[5] = replace(fleet[5], figures=replace(fleet[5].figures, points=points))

    def step(*expected: str) -> str:
        (line,) = (line for line in shown(judge_fleet(fleet, expected=expected), fleet, 400) if line.startswith("next"))
        return line

    rebuild = "give the folders of runs whose file has no attempts' medians, or files rebuilt from them with pybench"
    measure = "next: measure them with pybench run node_check, and give their runs beside the others"
    assert step().startswith(f"next: {rebuild}")
    assert step("node09").startswith(f"{measure}; {rebuild}")
    fleet.pop()
    assert step("node09") == measure


def test_text_of_a_run_does_not_steer_the_terminal_or_the_shell() -> None:
    """A check's reason is the worker's or the file's text."""
    fleet = runs()
    fleet[0] = replace(fleet[0], faults=("GPU 1: \x1b[31m'; reboot #\nsecond",))
    result = judge_fleet(fleet)
    assert "\x1b" not in "".join(shown(result, fleet))
    (line,) = drain_list(result)
    assert shlex.split(line)[-1] == "Reason=pybench: GPU 1:  [31m'; reboot # second"


def test_one_node_is_no_plural() -> None:
    """Neither is its run."""
    lines = shown(judge_fleet(runs()[:1]), runs()[:1])
    assert lines[1] == "1 run of driver 580.1; smallest effect 1 %"
    assert lines[-1] == "verdict: not compared - of 1 node: 1 not compared"


def test_a_long_reason_is_cut() -> None:
    """A scheduler shows one line."""
    node = FleetNode(name="n1", state="bad", symptoms=judge_fleet(runs(slow={"node02": 0.2})).nodes[0].symptoms * 5)
    (line,) = drain_list(FleetResult(suite="s", state="bad", nodes=(node,)))
    assert len(shlex.split(line)[-1]) == len("Reason=") + 120
