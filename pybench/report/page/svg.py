"""The few SVG parts that every chart of the page is made from. Text is escaped by :class:`markupsafe.Markup`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pybench.report.table import printable

WIDTH, HEIGHT = 520, 320
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 14, 44
Place = tuple[float, float]
_MARKERS = ("circle", "square", "diamond", "triangle")


@dataclass(frozen=True)
class Axes:
    """Both axes start at 0; ``x_max`` and ``y_max`` are their ends."""

    x_max: float
    y_max: float

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return LEFT + value / self.x_max * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        return HEIGHT - BOTTOM - value / self.y_max * (HEIGHT - TOP - BOTTOM)


def figure(title: str, description: str, parts: Iterable[Markup], width: int = WIDTH, height: int = HEIGHT) -> Markup:
    """A drawing with a name and a description for screen readers."""
    name = printable(f"{title}. {description}")
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(width, height, name)
    return head + Markup("").join(parts) + Markup("</svg>")


def grid(axes: Axes, x_ticks: Sequence[float], x_name: str, y_name: str, show: Callable[[float], str] = str) -> Markup:
    """Lines, ticks and names of both axes."""
    parts = []
    for value in ticks(axes.y_max):
        at = axes.y(value)
        parts.append(line((LEFT, at), (WIDTH - RIGHT, at), "grid"))
        parts.append(text(LEFT - 8, at + 4, f"{value:g}", "end"))
    for value in x_ticks:
        parts.append(line((axes.x(value), axes.y(0)), (axes.x(value), axes.y(0) + 5), "axis"))
        parts.append(text(axes.x(value), axes.y(0) + 20, show(value), "middle"))
    parts.append(line((LEFT, axes.y(0)), (WIDTH - RIGHT, axes.y(0)), "axis"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_name, "middle", "name"))
    parts.append(
        Markup('<text class="name" text-anchor="middle" transform="translate(13 {:.1f}) rotate(-90)">{}</text>').format(
            (TOP + HEIGHT - BOTTOM) / 2, printable(y_name)
        )
    )
    return Markup("").join(parts)


def ticks(end: float, most: int = 6) -> list[float]:
    """Round values from 0 to ``end``, at most so many steps."""
    raw = end / most
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    return [step * i for i in range(int(end / step + 1e-9) + 1)]


def line(start: Place, end: Place, name: str) -> Markup:
    """A straight line of class ``name``."""
    return Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(name, *start, *end)


def polyline(places: Sequence[Place], name: str) -> Markup:
    """Connected places."""
    return Markup('<polyline class="{}" points="{}"/>').format(name, _points(places))


def polygon(places: Sequence[Place], name: str) -> Markup:
    """A filled shape."""
    return Markup('<polygon class="{}" points="{}"/>').format(name, _points(places))


def text(x: float, y: float, words: str, anchor: str = "start", name: str = "") -> Markup:
    """Words at a place."""
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        name, x, y, anchor, printable(words)
    )


def marker(place: Place, number: int, tip: str, size: float = 5.0) -> Markup:
    """A mark in the shape and colour of its series; ``tip`` shows on hover."""
    x, y = place
    shape = _MARKERS[number % len(_MARKERS)]
    corners = {
        "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        "diamond": ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)),
        "triangle": ((0, -1.2), (1.2, 1), (-1.2, 1)),
    }
    if shape == "circle":
        drawn = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>').format(x, y, size)
    else:
        drawn = Markup('<polygon points="{}"/>').format(
            _points([(x + a * size, y + b * size) for a, b in corners[shape]])
        )
    return Markup('<g class="mark series{}">{}<title>{}</title></g>').format(number % 8, drawn, printable(tip))


def _points(places: Iterable[Place]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
