"""Time, software and machine of a run on one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pybench.model.manifest import Containment, Provenance
from pybench.model.text import counted, listed, plural


def sentence(provenance: Provenance, *, detail: bool = True, where: str = "-v lists") -> str:
    """For instance ``2026-11-21T08:29:31+00:00, pybench 0.1.0, 4 x NVIDIA H200, driver 580.159.04, torch 2.11.0``.

    Tuning variables are listed with ``detail``, else counted; ``where`` names their place then.
    """
    parts = [
        provenance.created_utc,
        f"pybench {provenance.pybench_version}",
        counted(provenance.gpu_names) or provenance.cpu_model or "unknown CPU",
        *_hosts(provenance),
        *_driver(provenance),
        *(f"{name} {version}" for name, version in provenance.packages.items()),
        _containment(provenance.containment) if provenance.containment else "not containerised",
        *_environment(provenance.environment or {}, None if detail else where),
    ]
    return ", ".join(parts)


def changes(options: Sequence[str]) -> str:
    """Changes by the command line, ``changed by --set batch_size=1 --attempts 5``; empty without any."""
    return f"changed by {' '.join(options)}" if options else ""


def _environment(variables: Mapping[str, str], where: str | None) -> list[str]:
    if where is None:
        return [f"{name}={value}" for name, value in variables.items()]
    return [f"{plural(len(variables), 'tuning variable')} set ({where})"] if variables else []


def _hosts(provenance: Provenance) -> list[str]:
    if not provenance.hosts:
        return []
    bound_s = provenance.clock_bound_s
    joined = "" if bound_s is None else f" (clocks joined to {bound_s * 1000:.2g} ms)"
    return [f"on each of the hosts {listed(provenance.hosts)}{joined}"]


def _driver(provenance: Provenance) -> list[str]:
    """The host's driver, and what workers saw differently."""
    seen, host = provenance.worker_driver, provenance.driver
    other = f" (workers saw {seen})" if seen and host and seen != host else ""
    newer = " with forward compatibility" if provenance.forward_compatible else ""
    return [f"driver {host or seen}{other}{newer}"] if host or seen else []


def _containment(containment: Containment) -> str:
    """Engine, images and what was loosened."""
    engine = " ".join(part for part in (containment.engine, containment.engine_version) if part)
    unpinned = "" if containment.pinned else "unpinned "
    loosened = f" with looser {', '.join(containment.relaxations)}" if containment.relaxations else ""
    return f"in {engine}{loosened}, {unpinned}image {', '.join(containment.images)}"
