"""Pages that are not of one run alone, from figures made by hand."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from pybench.explain.text import section_of
from pybench.explain.values import ExplainedPoint, Explanation
from pybench.model.figures import PointFigures
from pybench.model.record import Energy, GpuEnergy
from pybench.model.results import Results
from pybench.nightly import history_page as history
from pybench.nightly.history import History, series_of
from pybench.nightly.values import Accepted
from pybench.power import page as command
from pybench.power.measured_command import CommandPower
from pybench.power.trace import PowerTrace
from pybench.report.page.render import render
from pybench.report.run.view import RunView
from pybench.report.text.labels import short_labels
from tests.runs_against_runs import nights, point, scaled

STEADY = (100.0, 100.1, 99.9)


class PageReader(HTMLParser):
    """Tags of a page with their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in {"script", "style"}:
            self.inline.append((self.tags[-1][0], data))


def _point(degree: int, medians: dict[str, tuple[float, ...]], absence: str | None = None) -> PointFigures:
    name = f"decode[tensor_parallel={degree}]"
    return point(name, axes={"tensor_parallel": degree}, medians=medians, absence=absence)


def history_page(
    num: int = 30, skipped: str = "cut short", driver: str = '"580.1"', accepted: tuple[Accepted, ...] = ()
) -> str:
    """Of so many nights; the last one lacks a row, and one in the middle another. The last one has the ``driver``."""
    runs = list(nights(num))
    for night, place in ((num // 2, 0), (num - 1, 1)):
        points = list(runs[night].points)
        points[place] = replace(points[place], medians=scaled(points[place].num_gpus))
        runs[night] = replace(runs[night], points=tuple(points))
    found = History(folder=Path("runs"), runs=tuple(runs), skipped=(("x.json", skipped),))
    runs[-1] = replace(runs[-1], keys={**runs[-1].keys, "driver": driver})
    return history.render(found, series_of(runs, runs[-1], ("driver",)), accepted)


def command_page(trace: PowerTrace, start_ns: int, end_ns: int, argv: tuple[str, ...] = ("train", "--fast")) -> str:
    """Each GPU used 3,600 J and one more for each before it."""
    gpus = [
        GpuEnergy(
            uuid=gpu.uuid,
            index=gpu.index,
            energy_j=3600.0 + number,
            energy_low_j=3550.0,
            energy_high_j=3660.0,
            mean_power_w=400.0,
            max_power_w=700.0,
            method="counter+series",
            flags=("uncalibrated",),
        )
        for number, gpu in enumerate(trace.gpus)
    ]
    energy = Energy(start_ns=start_ns, end_ns=end_ns, gpus=tuple(gpus))
    return command.render(CommandPower(argv, 3, energy, trace, {}, "no RAPL here"))


def explained_page(results: Results, note: str = "other software") -> str:
    """The hand-made results, two of whose points are explained: one takes 2.5 s of an ideal 2 s."""
    parts = {"compute": 0.3, "memory": -0.1, "communication": 0.25, "rest": 0.05}
    explained = ExplainedPoint(
        point_id="decode[backend=torch,tensor_parallel=2]",
        baseline_id="decode[backend=torch,tensor_parallel=1]",
        num_gpus=2,
        measured_s=2.5,
        measured_speedup=1.6,
        predicted_s=2.45,
        predicted_speedup=1.63,
        shortfall_s=0.5,
        parts=parts,
    )
    unknown = ExplainedPoint(
        point_id="decode[backend=torch,tensor_parallel=4]",
        baseline_id="decode[backend=torch,tensor_parallel=1]",
        num_gpus=4,
        measured_s=1.0,
        measured_speedup=2.0,
        reason="the node's run has no collective of 4 GPUs",
    )
    explanation = Explanation(
        run_id="r", node_run_id="n", points=(explained, unknown), extrapolations=(), notes=(note,)
    )
    names = short_labels(results.points, with_benchmark=True)
    return render(RunView(results=results), [section_of(explanation, names)])
