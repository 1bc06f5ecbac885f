"""One line of JSON for a health agent: the verdict, and every broken GPU and link by index."""

from __future__ import annotations

import json

from pybench.core.node_faults import faults
from pybench.report.run.findings import findings
from pybench.report.run.view import RunView


def render(view: RunView) -> str:
    """The verdict with its reason, the node's faults, the gravest first, and all findings with what to do next."""
    results = view.results
    broken = faults(results.node, results.points, results.provenance.gpus)
    line = {
        "suite": results.suite,
        "run": results.run_id,
        "folder": None if view.path is None else str(view.path),
        "finished_utc": results.provenance.finished_utc,
        "verdict": results.verdict,
        "reason": results.reason,
        "faults": [
            {"part": fault.part, "kind": fault.kind, "gpus": list(fault.gpus), "text": fault.sentence}
            for fault in broken
        ],
        "findings": [{"verdict": f.verdict, "text": f.text(), "next": f.step} for f in findings(view)],
    }
    return json.dumps(line) + "\n"
