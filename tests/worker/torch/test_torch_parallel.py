"""Numbers that must not depend on how the work is split."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
import torch

from pybench.model.workloads.generate import Generate
from pybench.model.workloads.turn import Turn
from pybench.run.events.contract import ordered_phases
from pybench.worker.backends.torch.architecture import build_model
from pybench.worker.backends.torch.generate import Generation
from tests.builders import TINY
from tests.golden_sentences import sentences_of
from tests.worker.torch.torchrun import torchrun

SENTENCES = sentences_of("worker.torch.torch_parallel")

CPU = torch.device("cpu")
TOKENS = torch.arange(12).reshape(2, 6) * 7
SIZES: dict[str, Any] = {"batch_size": 4, "prompt_tokens": 6, "output_tokens": 6}


FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "gemma3_text": {"head_dim": 16, "sliding_window": 4, "tie_word_embeddings": True},
}


TURNS: dict[str, dict[str, Any]] = {
    "full": {"topology": "full", "strategy": "fsdp", "sleep_level": 2},
    "full_overlapped": {
        "topology": "full",
        "strategy": "tensor_parallel",
        "train_tensor_parallel": 2,
        "handover": "file",
        "async_weight_syncing": True,
    },
    "full_chunks": {"topology": "full", "strategy": "context_parallel", "train_context_parallel": 2},
    "full_sharded_chunks": {
        "topology": "full",
        "strategy": "fsdp",
        "train_context_parallel": 2,
        "sleep_level": 2,
        "loss": "grpo",
        "group_size": 2,
    },
    "decoupled": {
        "topology": "decoupled",
        "handover": "file",
        "lora_rank": 4,
        "lora_targets": "all_linear",
    },
}
TORCHTUNE: dict[str, dict[str, Any]] = {
    "full": {"topology": "full", "strategy": "torchtune", "sleep_level": 2, "activation_checkpointing": "full"},
    "full_overlapped": {
        "topology": "full",
        "strategy": "torchtune",
        "train_tensor_parallel": 2,
        "handover": "file",
        "async_weight_syncing": True,
        "loss": "grpo",
        "group_size": 2,
    },
}


@pytest.fixture(scope="module")
def two_ranks(warm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two real gloo ranks computed."""
    return _computed(warm_python, TURNS, tmp_path_factory.mktemp("ranks") / "saved.pt")


def _computed(python: Path, turns: dict[str, dict[str, Any]], out: Path) -> dict[str, Any]:
    shapes = {family: {**TINY, "model_type": family, **more} for family, more in FAMILIES.items()}
    arguments = (json.dumps(shapes), json.dumps(TOKENS.tolist()), json.dumps(turns), str(out))
    torchrun(python, 2, "two_ranks.py", *arguments)
    saved: dict[str, Any] = torch.load(out)
    return saved


@pytest.mark.parametrize("name", TURNS)
def test_two_ranks_take_turns(two_ranks: dict[str, Any], name: str) -> None:
    """Every check of both turns passes on both ranks; the engine computes with the new weights, not with the old."""
    _check_turns(TURNS[name], two_ranks["turns"][name])


def _check_turns(order: Any, turns: list[tuple[list[str], dict[str, float]]]) -> None:
    settings = Turn(backend="torch", model="tiny", tensor_parallel=2, **SIZES, **order)
    assert len(turns) == 2
    for phases, values in turns:
        assert tuple(phases) == ordered_phases(settings)
        assert values["logprob_gap_to_old"] > 10 * values["logprob_gap"]
        assert values["staleness_turns"] == settings.async_weight_syncing


@pytest.mark.skipif(find_spec("torchtune") is None, reason="torchtune is not installed")
def test_torchtunes_recipe_takes_turns(warm_python: Path, tmp_path: Path) -> None:
    """Its first turn moves the weights as FSDP does, and the engine has them by the names that it knows."""
    found = _computed(warm_python, {**TORCHTUNE, "fsdp": TURNS["full"]}, tmp_path / "saved.pt")
    for name, order in TORCHTUNE.items():
        _check_turns(order, found["turns"][name])
    gaps = [found["turns"][name][0][1]["logprob_gap_to_old"] for name in ("fsdp", "full")]
    assert gaps[1] == pytest.approx(gaps[0], rel=1e-3)
    assert found["fault"] == SENTENCES["torchtunes_recipe_takes_turns"]


def test_ranks_that_share_sequences_train_alike(two_ranks: dict[str, Any]) -> None:
    """By halves of each sequence the first turn moves the weights as by whole sequences."""
    gaps = [two_ranks["turns"][name][0][1]["logprob_gap_to_old"] for name in ("full", "full_chunks")]
    assert gaps[1] == pytest.approx(gaps[0], rel=1e-3)


def test_a_weight_that_one_rank_of_two_lacks_is_caught(two_ranks: dict[str, Any]) -> None:
    """The first rank names the weight, and the second one's shard."""
    assert two_ranks["fault"] == SENTENCES["torchtunes_recipe_takes_turns"]


@pytest.mark.parametrize("family", FAMILIES)
def test_split_model_has_whole_models_logits(two_ranks: dict[str, Any], family: str) -> None:
    """Two halves agree with the whole; halves of two different models do not, so this test can fail."""
    whole_model: Any = build_model({**TINY, "model_type": family, **FAMILIES[family]}, torch.float32, CPU, 0)
    with torch.no_grad():
        whole = whole_model(input_ids=TOKENS).logits
    torch.testing.assert_close(two_ranks["split"][family], whole, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(two_ranks["broken"][family], whole, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("prompt_tokens", [1, 6])
@pytest.mark.parametrize("family", FAMILIES)
def test_cached_decode_equals_full_forward(architecture: dict[str, Any], family: str, prompt_tokens: int) -> None:
    """Also in a second step over the same cache, and past a sliding window of 4."""
    shape = {**architecture, "model_type": family, **FAMILIES[family]}
    model = build_model(shape, torch.float32, CPU, 0).eval()
    settings = Generate(
        backend="torch", model="tiny", dtype="float32", batch_size=2, prompt_tokens=prompt_tokens, output_tokens=5
    )
    config: Any = model.config
    config._attn_implementation = "eager"
    work = Generation(settings, model, CPU)
    for index in (0, 1):
        config._attn_implementation = "pybench"
        work.step(index)
        tokens = work.prompts(index)
        config._attn_implementation = "eager"  # the library's own attention and masks are the reference
        with torch.no_grad():
            for _ in range(5):
                best = model(input_ids=tokens, use_cache=False).logits[:, -1:].argmax(-1)
                tokens = torch.cat([tokens, best], dim=1)
        assert work.output.tolist() == tokens[:, prompt_tokens:].tolist()


def test_rounds_without_communication_follow_the_measured_steps(two_ranks: dict[str, Any]) -> None:
    """They give the share of communication and the gap between ranks, and the model sums over its ranks again."""
    metrics, before, after = two_ranks["control"]
    assert {"exposed_communication_fraction", "straggler_gap_fraction"} <= metrics.keys()
    assert 0 <= metrics["exposed_communication_fraction"] < 1
    assert before == after
