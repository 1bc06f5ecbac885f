"""The estimate of a turn's pinned host memory, held against kept runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pybench.core.memory.turn_host import pinned_bytes
from pybench.files.model_shapes import load_models
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.turn import Turn
from tests.suites.test_generate_suites import SUITES


def shape_of(model: str) -> DecoderShape:
    """Of a model of the registry; the runs' own model has its size, and a head of its own."""
    known = {"llama-1b-untied": "llama-3.2-1b"}
    found = DecoderShape.from_config(load_models()[known.get(model, model)])
    return replace(found, tied_embeddings=False) if model in known else found


def kept_points() -> dict[str, tuple[dict[str, Any], float]]:
    """Settings and measured bytes of every kept turn."""
    return {
        f"{path.stem} {point['id']}": (point["settings"], point["metrics"]["host_pinned_bytes"]["value"])
        for path in sorted((SUITES / "measured").glob("*turn*.json"))
        for point in json.loads(path.read_text())["points"]
        if "host_pinned_bytes" in point["metrics"]
    }


def test_every_kept_turn_is_near_its_estimate() -> None:
    """Within 15 %, or 0.1 GB at level 0: with all weights trained and adapters, of one GPU to four."""
    kept = kept_points()
    found = {id_: pinned_bytes(Turn(**given), shape_of(given["model"])) for id_, (given, _) in kept.items()}
    settings = [given for given, _ in kept.values()]
    assert {(one["sleep_level"], one["lora_rank"] is None) for one in settings} >= {
        (1, True),
        (1, False),
        (2, True),
    }
    assert {one["tensor_parallel"] for one in settings} >= {1, 2, 4}
    assert found == {id_: pytest.approx(measured, rel=0.15, abs=1e8) for id_, (_, measured) in kept.items()}
