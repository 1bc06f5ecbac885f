"""Tests of several rooms plan a suite and judge the records of a run by these functions.

Joules of simulated boards are measured by :func:`tests.physics.windows.measure`, edited runs verified by
:meth:`tests.evidence.forgery.Forgery.verified`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pybench.core.assemble import assemble
from pybench.core.good_run import GoodRun
from pybench.core.measurements import Measurements
from pybench.core.plan import expand, with_words
from pybench.files.shipped import load_models
from pybench.model.decoder_shape import Architecture
from pybench.model.machine import Devices
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.results import Results
from pybench.model.suite import Benchmark, Plan, Suite


def suite_of(*benchmarks: Benchmark) -> Suite:
    """A suite "s" of these benchmarks."""
    return Suite(name="s", description="", benchmarks=benchmarks)


def planned(suite: Suite, there: Devices, models: Mapping[str, Architecture] | None = None, **options: Any) -> Plan:
    """The plan on what is there, with values for the suite's words; of the shipped ``models`` unless others are given.

    ``options`` are those of :func:`~pybench.core.plan.expand`.
    """
    words = with_words(suite, num_devices=there.count, max_gpus=options.get("max_gpus"))
    return expand(words, load_models() if models is None else models, there, **options)


def good_run(manifest: Manifest, records: Iterable[Record]) -> GoodRun:
    """A run that a table may be written from."""
    measured = Measurements.of(manifest.plan, records)
    return GoodRun(manifest=manifest, measurements=measured, results=assemble(manifest, measured))


def judged(manifest: Manifest, records: Iterable[Record]) -> Results:
    """Results of the manifest's plan from these records."""
    return good_run(manifest, records).results
