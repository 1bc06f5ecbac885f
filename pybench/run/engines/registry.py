"""All engines by name; the one place that names them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybench.model.container import EngineFacts
    from pybench.run.engines.base import Engine

LOCAL = "none"
"""Workers run in a Python of this machine, in no container."""

_MODULES = {
    "docker": "pybench.run.engines.oci.docker",
    "podman": "pybench.run.engines.oci.podman",
    "apptainer": "pybench.run.engines.apptainer.engine",
    "enroot": "pybench.run.engines.enroot.engine",
    LOCAL: "pybench.run.engines.local",
}
"""Modules are imported when an engine is used: the command line starts fast. The preferred engine comes first."""

ENGINES = tuple(_MODULES)
CONTAINER_ENGINES = tuple(name for name in ENGINES if name != LOCAL)


def get_engine(name: str) -> Engine:
    """The engine called ``name``."""
    found: Engine = import_module(_MODULES[name]).ENGINE
    return found


def find_container_engines() -> tuple[tuple[Engine, EngineFacts], ...]:
    """Every engine that starts containers, with what this machine has of it."""
    engines = tuple(map(get_engine, CONTAINER_ENGINES))
    return tuple((engine, engine.find()) for engine in engines)
