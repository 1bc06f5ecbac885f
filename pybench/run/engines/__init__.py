"""Floor 5: how workers are started and ended, by this machine's Python or in containers; one folder an engine."""

LOCAL = "none"
"""Workers run in a Python of this machine, in no container."""

PLACES = {
    "docker": "oci.engine:DOCKER",
    "podman": "oci.engine:PODMAN",
    "apptainer": "apptainer.engine:ENGINE",
    "enroot": "enroot.engine:ENGINE",
    LOCAL: "local:ENGINE",
}
"""Module and name of each engine, imported when it is used to start fast; the preferred engine comes first."""

ENGINES = tuple(PLACES)
CONTAINER_ENGINES = tuple(name for name in ENGINES if name != LOCAL)
