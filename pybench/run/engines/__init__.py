"""Floor 5: how workers are started and ended, by this machine's Python or in containers; one folder an engine."""

LOCAL = "none"
"""Workers run in a Python of this machine, in no container."""

MODULES = {
    "docker": "pybench.run.engines.oci.docker",
    "podman": "pybench.run.engines.oci.podman",
    "apptainer": "pybench.run.engines.apptainer.engine",
    "enroot": "pybench.run.engines.enroot.engine",
    LOCAL: "pybench.run.engines.local",
}
"""Modules are imported when an engine is used: the command line starts fast. The preferred engine comes first."""

ENGINES = tuple(MODULES)
CONTAINER_ENGINES = tuple(name for name in ENGINES if name != LOCAL)
