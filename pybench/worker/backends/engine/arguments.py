"""Arguments that start an engine: a model's config folder, without weights or tokenizer, and those of the suite."""

from __future__ import annotations

import difflib
import json
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pybench.model.backend import MODEL_CLASSES
from pybench.model.workloads.generate import decided_text
from pybench.worker.backend import UnsupportedError


@contextmanager
def config_folder(architecture: dict[str, Any], dtype: str) -> Iterator[Path]:
    """A folder with ``config.json``, there as long as the context is open.

    It lies in the working directory, the attempt's own: a worker that is killed leaves it there.

    Raises :class:`UnsupportedError` for a family whose class is not known.
    """
    family = architecture.get("model_type")
    if family not in MODEL_CLASSES:
        raise UnsupportedError(f"model_type {family!r}: engines here know {', '.join(MODEL_CLASSES)}")
    # Both names of the type: libraries before and after its renaming read it.
    values = {**architecture, "architectures": [MODEL_CLASSES[family]], "dtype": dtype, "torch_dtype": dtype}
    with tempfile.TemporaryDirectory(prefix="model-", dir=Path.cwd()) as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(values, indent=1), encoding="utf-8")
        yield folder


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
