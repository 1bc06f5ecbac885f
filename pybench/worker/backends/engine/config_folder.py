"""A model's shape as the folder that engines load: a config without weights or tokenizer."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pybench.model.backend import MODEL_CLASSES
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
