"""Pages that are not of one run alone, from figures made by hand."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from pybench.model.figures import PointFigures
from pybench.model.record import Energy, GpuEnergy
from pybench.nightly import history_page as history
from pybench.nightly.history import History, series_of
from pybench.nightly.values import Accepted
from pybench.power import page as command
from pybench.power.measured_command import CommandPower
from pybench.power.trace import PowerTrace
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
