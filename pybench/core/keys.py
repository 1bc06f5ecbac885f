"""Figures of a run for other runs, and the keys that must be equal for a comparison unless the user names them."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import fmean

from pybench.core.measurements import grouped
from pybench.core.provenance import HOST_FIELD
from pybench.model.errors import UsageError
from pybench.model.figures import MACHINE_KEYS, NO_MEDIANS, PointFigures, RunFigures
from pybench.model.results import PointResult, Results
from pybench.model.suite import MEASURED_BY
from pybench.model.text import counted
from pybench.model.tuning import tuning_alone
from pybench.model.workloads.registry import HEADLINES

SETTINGS, MODEL = "settings", "model"
_NAMES = {"gpus": "gpu", "power_limits_w": "power_limit", "images": "image"}
GROUPS = {
    "software": "every package, the image, the environment, the engine, pybench and its build",
    "packages": "every package that workers reported, and their Python",
    "environment": "the variables that tune workers",
}
"""Words of ``--across`` that stand for several keys."""
BUILD = "build"
"""The source of the workers, by its digest: two builds of one version may measure differently."""
_OF_RUN = ("suite", "profile", "engine", "pybench", BUILD)
_FINGERPRINTS = frozenset(("machine", "software"))
_NOT_PACKAGES = frozenset((*MACHINE_KEYS, *_OF_RUN, "image", "machine", "software"))
_SOFTWARE = frozenset(("engine", "pybench", BUILD, "image", "software"))
_BARE = "has a fingerprint, not its fields"
_MOST_OF_GROUP = 3
_GPU = re.compile(r"(.+) (GPU-\S{8})\S*")


def run_keys(results: Results) -> dict[str, str]:
    """Keys of a whole run. A run of a version that recorded no fields has its two fingerprints alone."""
    machine = results.machine_fields or {"machine": results.fingerprint}
    software = tuning_alone(results.software_fields) or {"software": results.software_key or "not recorded"}
    of_run = {
        "suite": results.suite,
        "profile": results.profile or "none",
        "engine": results.provenance.engine,
        "pybench": results.provenance.pybench_version.partition(".dev")[0],  # commits between differ by their build
        **({BUILD: results.provenance.worker_sha256[:12]} if results.provenance.worker_sha256 else {}),
    }
    return {_NAMES.get(name, name): value for name, value in {**machine, **software, **of_run}.items()}


def check_across(across: Collection[str], keys: Collection[str]) -> None:
    """Refuse a name that is no key. Raises ``UsageError``, which lists the keys."""
    valid = [*GROUPS, *MACHINE_KEYS, *_OF_RUN, "image", SETTINGS, MODEL]
    for name in across:
        if name not in valid and name not in keys:
            listed = ", ".join(dict.fromkeys((*valid, *sorted(keys))))
            raise UsageError(f"--across {name}: no such key; there are {listed}")


def differing(before: RunFigures, now: RunFigures, across: Collection[str] = ()) -> tuple[str, ...]:
    """Each key that differs and is not ``across``, as ``driver: 580.1 -> 580.2``.

    A run without any figure is compared by the keys that it recorded. A run with two bare fingerprints, as an older
    version recorded, agrees with no run that has their fields.
    """
    then, today = before.keys, now.keys
    if not (before.is_measured and now.is_measured):
        of_both = [name for name in then if name in today]
        then, today = ({name: keys[name] for name in of_both} for keys in (then, today))
    bare = _FINGERPRINTS & (then.keys() ^ today.keys())
    if bare:
        side = "the reference" if bare <= then.keys() else "this run"
        return (f"{', '.join(sorted(bare))}: {side} {_BARE}; its run folder has them",)
    return tuple(
        f"{name}: not the same, by its fingerprint; run folders name what differs"
        if name in _FINGERPRINTS
        else f"{name}: {_change_of(_values(then.get(name)), _values(today.get(name)))}"
        for name in dict.fromkeys((*then, *today))
        # Results of earlier versions have no build; they are compared all the same.
        if not (name == BUILD and (name not in then or name not in today))
        if _compared(name, then) != _compared(name, today) and not {name, *_groups(name)}.intersection(across)
    )


def _compared(name: str, keys: Mapping[str, str]) -> list[str]:
    """A key's values; what is equal of all GPUs counts once, as ``gpu`` has how many there are."""
    values = _values(keys.get(name))
    return values if name == "gpu" or len({*values}) > 1 else values[:1]


def across_words(differences: Collection[str]) -> tuple[str, ...]:
    """What ``--across`` takes to allow the differences that :func:`differing` found; none where it can't allow one.

    A group's word stands for more than three of its keys.
    """
    if any(_BARE in text for text in differences):
        return ()
    names = dict.fromkeys(text.partition(":")[0] for text in differences)
    groups = {name: next(_groups(name), name) for name in names}
    of_group = Counter(groups.values())
    return tuple(dict.fromkeys(group if of_group[group] > _MOST_OF_GROUP else name for name, group in groups.items()))


def point_difference(before: PointFigures, now: PointFigures, across: Collection[str] = ()) -> str | None:
    """How a point's settings differ from an earlier run's, ``None`` where they agree or may differ.

    Settings that one of the runs did not record can't agree.
    """
    if SETTINGS in across or (before.digest == now.digest and now.digest is not None):
        return None
    names = [name for name in now.settings if name in before.settings or name not in MEASURED_BY]
    names += [name for name in before.settings if name not in (*names, *MEASURED_BY)]
    changed = [name for name in names if before.settings.get(name) != now.settings.get(name)]
    if changed == [MODEL] and MODEL in across:
        return None
    if before.digest is None or now.digest is None:
        return f"{SETTINGS}: not recorded in {'this run' if now.digest is None else 'the reference'}"
    if changed and before.settings and now.settings:
        return "; ".join(_change(name, before, now) for name in changed)
    by = f" ({', '.join(now.options)})" if now.options else ""
    return f"{SETTINGS}: steps, warm-up, the model's shape or how processes are shared{by}"


def _change(name: str, before: PointFigures, now: PointFigures) -> str:
    """Both values, and the option of the command line that made the second, or else the first."""
    values = (_distinct(_values(json.dumps(point.settings.get(name)))) for point in (before, now))
    # --set decode.steps=4, or --steps 4
    about = re.compile(rf"--set '?(?:[\w.-]+\.)?{re.escape(name)}=|--{re.escape(name.replace('_', '-'))} ")
    option = next((text for text in now.options if about.match(text)), None)
    earlier = next((text for text in before.options if about.match(text)), None)
    by = f" ({option})" if option else f" (earlier: {earlier})" if earlier else ""
    return f"{name}: {' -> '.join(values)}{by}"


def _groups(name: str) -> Iterator[str]:
    if name.startswith("$"):
        yield from ("environment", "software")
    elif name not in _NOT_PACKAGES and not name.startswith(HOST_FIELD):
        yield from ("packages", "software")
    elif name in _SOFTWARE:
        yield "software"


def _change_of(before: Sequence[str], now: Sequence[str]) -> str:
    """Both values in the shortest form that differs; GPUs by their kind and the beginnings of their UUIDs."""
    texts = [(form(before), form(now)) for form in (_counted_gpus, _distinct, counted, ", ".join)]
    return " -> ".join(next((pair for pair in texts if pair[0] != pair[1]), texts[-1]))


def _counted_gpus(values: Sequence[str]) -> str:
    gpus = [(match[1], match[2]) for value in values if (match := _GPU.fullmatch(value))]
    if len(gpus) < len(values):
        return _distinct(values)
    return ", ".join(f"{len(uuids)} x {kind} ({', '.join(uuids)})" for kind, uuids in grouped(gpus).items())


def _distinct(values: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _values(value: str | None) -> list[str]:
    """A key's values as people read them, a lone one as a list of one; quotes of JSON are taken off."""
    if value is None:
        return ["none"]
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):  # a file can hold any text
        return [value]
    items = parsed if isinstance(parsed, list) else [parsed]
    return ["none" if item is None else str(item) for item in items] or ["none"]


WATCHED = (
    *HEADLINES,
    "ttft_s",
    "tpot_s",
    "energy_j_per_output_token",
    "energy_j_per_token",
    "energy_j_per_sample",
    "peak_memory_bytes",
)
"""Metrics that are compared unless others are named: speed, latency, energy for each unit of work, memory."""
_SAME_AS_HEADLINE = "step_s"
_ENERGY_OF_STEP = "energy_j"


def run_figures(results: Results, metrics: Collection[str] = ()) -> RunFigures:
    """Figures of the watched metrics, and of ``metrics``, at every point of the suite; absent ones have a reason."""
    return RunFigures(
        run_id=results.run_id,
        created_utc=results.provenance.created_utc,
        suite=results.suite,
        verdict=results.verdict,
        keys=run_keys(results),
        points=tuple(_point(point, metrics, results.options) for point in results.points),
        part_of=results.part_of,
        kept_by=next((option for option in results.options if option.startswith("-k ")), None),
    )


def _point(point: PointResult, metrics: Collection[str], options: tuple[str, ...]) -> PointFigures:
    watched = [name for name in WATCHED if name in point.metrics]
    # A step's time only where no headline has the same meaning, its joules where nothing divides them.
    if len([name for name in watched if name in HEADLINES]) > 1:
        watched = [name for name in watched if name != _SAME_AS_HEADLINE]
    if not any(name.startswith(f"{_ENERGY_OF_STEP}_per") for name in watched):
        watched.append(_ENERGY_OF_STEP)
    columns = {name: point.metrics[name].medians for name in (*watched, *metrics) if name in point.metrics}
    medians = {name: values for name, values in columns.items() if values and all(map(math.isfinite, values))}
    clocks_hz = [gpu.sm_clock_hz for gpu in point.gpu_states if gpu.sm_clock_hz is not None]
    absence = NO_MEDIANS if point.status == "ok" else point.reason or point.status
    return PointFigures(
        id=point.id,
        benchmark=point.benchmark,
        axes=point.axes,
        num_gpus=point.num_gpus,
        digest=point.digest,
        medians=medians,
        absence=None if medians else absence,
        num_failed=point.failed_attempts,
        settings={**point.settings, **point.effort},
        sm_clock_hz=fmean(clocks_hz) if clocks_hz else None,
        temperature_c=max((t for gpu in point.gpu_states if (t := gpu.temperature_c) is not None), default=None),
        held_by=tuple(sorted({word for gpu in point.gpu_states for word in gpu.held_by or ()})),
        flags=point.flags,
        is_missing=not medians and point.status in {"failed", "missing", "does_not_fit"},
        options=options,
    )
