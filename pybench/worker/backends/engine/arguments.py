"""A suite's own engine arguments, checked against what the installed engine takes."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from pybench.model.workloads.engine_arguments import decided_text
from pybench.worker.backend import UnsupportedError


def merged(
    ours: Mapping[str, Any],
    given: Mapping[str, Any],
    valid: Collection[str],
    engine: str,
    decided: Mapping[str, str | None],
) -> dict[str, Any]:
    """``ours`` with ``given`` on top. ``engine`` names the engine and its version in complaints.

    ``decided`` are arguments that settings of pybench's decide, also where ``ours`` leaves them out, each with the
    setting to use instead; ``None``: there is none.

    Raises :class:`UnsupportedError` for arguments that the engine lacks, ours included, and for those of the suite that
    pybench decides.
    """
    for name in given:
        if name in ours or name in decided:
            raise UnsupportedError(f"engine_args.{decided_text(name, decided.get(name))}")
    for name in (*given, *ours):
        if name not in valid:
            close = difflib.get_close_matches(name, list(valid), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UnsupportedError(f"engine_args.{name}: {engine} has no such argument{hint}")
    return {**ours, **given}
