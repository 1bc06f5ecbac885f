"""All engines by name; the one place that names them."""

from __future__ import annotations

from importlib import import_module

from pybench.engines.base import Engine
from pybench.model.container import EngineFacts

LOCAL = "none"
"""Workers run in a Python of this machine, in no container."""

_MODULES = {
    "docker": "pybench.engines.oci.docker",
    "podman": "pybench.engines.oci.podman",
    "apptainer": "pybench.engines.apptainer.engine",
    "enroot": "pybench.engines.enroot.engine",
    LOCAL: "pybench.engines.local",
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
