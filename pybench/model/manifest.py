"""The plan and machine of a run: written before the first attempt, and at the end with predictions."""

from __future__ import annotations

from dataclasses import dataclass, field

from pybench.model.container import ContainerSetup
from pybench.model.devices import DeviceKind
from pybench.model.expected import ExpectedTable
from pybench.model.host import Host
from pybench.model.machine import Machine
from pybench.model.plan_options import PartOf, PlanOptions
from pybench.model.software import Software
from pybench.model.suite import Plan, Suite
from pybench.model.verdict import Prediction

MANIFEST_FILE = "manifest.json"

# 1: first form. 2: begins with a checksum. 3: expectations and rows of tables carry their form.
# 4: options of the command line by name. 5: vram_gib, which was vram_gb.
MANIFEST_VERSION = 5


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All that a report or a resumed run needs in addition to the journal.

    ``build`` is the pybench that planned the run, "" in runs of builds that did not record it. ``worker_sha256`` covers
    the worker's source as staged; ``options`` are what the command line changed of the suite; ``part_of`` is ``None``
    for a run by itself; ``power_reason`` is why power is unknown, ``None`` when it is sampled; ``container`` is
    ``None`` when workers ran in this machine's own Python; ``software`` is that Python's, ``None`` where an image
    brings it. ``environment`` holds the variables that reach workers and tune them, without secrets. ``predictions``
    are what the node's own rates predict of the measured run: the manifest is written again with them. ``machines`` are
    the hosts of a run over several: the leading host, whose ``machine`` is the run's, then the others by name.
    """

    run_id: str
    created_utc: str
    pybench_version: str
    suite: Suite
    plan: Plan
    device: DeviceKind
    machine: Machine
    fingerprint: str
    tables: dict[str, ExpectedTable]
    worker_sha256: str
    engine: str
    options: PlanOptions = field(default_factory=PlanOptions)
    part_of: PartOf | None = None
    power_reason: str | None = None
    container: ContainerSetup | None = None
    environment: dict[str, str] = field(default_factory=dict)
    software: Software | None = None
    machines: tuple[Host, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    build: str = ""
    version: int = MANIFEST_VERSION
