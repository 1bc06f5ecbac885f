"""Every check of the node, over a run."""

from __future__ import annotations

from pybench.core.measurements import Measurements
from pybench.core.node.checksum import checksums
from pybench.core.node.driver import memory_errors, pcie, xids
from pybench.core.node.links import slow_links
from pybench.core.node.ranks import PointRecords
from pybench.core.node.sensors import sensors
from pybench.core.node.spread import slowest
from pybench.core.node.throttling import throttling
from pybench.model.machine import Machine
from pybench.model.results import NodeCheck
from pybench.model.workloads.node import NodeSettings

_OF_POINTS = (slowest, sensors, slow_links, checksums)
_OF_RUNS = (throttling, pcie, memory_errors, xids)


def node_checks(measurements: Measurements, machine: Machine) -> tuple[NodeCheck, ...]:
    """Checks of each point, then of the whole run. Empty for a suite that does not measure the node itself.

    What the driver reported counts in failed attempts, too: an XID is why many a worker fails.
    """
    planned = [point for point in measurements.plan.points if isinstance(point.settings, NodeSettings)]
    measured = [PointRecords(point, good, machine) for point in planned if (good := measurements.good(point.id))]
    found = [check for point in measured for kind in _OF_POINTS for check in kind(point)]
    if planned and measurements.records and machine.gpus:
        found += [check for kind in _OF_RUNS for check in kind(measurements.records, machine)]
    return tuple(found)
