"""The model shapes shipped with pybench."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

from pybench.model.decoder_shape import Architecture


@cache
def load_models() -> dict[str, Architecture]:
    """Hugging Face config mappings by model name, ``model_type`` included, in the data file's order.

    Read once a process.
    """
    text = resources.files("pybench").joinpath("data", "models.toml").read_text(encoding="utf-8")
    return {
        name: {key: value for key, value in table.items() if key != "source"}
        for name, table in tomllib.loads(text).items()
    }
