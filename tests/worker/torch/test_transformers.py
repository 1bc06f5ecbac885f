"""The transformers backend, for real on the CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pybench.model.wire import Failure, Header, Metric, Result
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import BackendName
from pybench.worker.backends.torch.architecture import FAMILIES as TORCH_FAMILIES
from pybench.worker.backends.torch.architecture import build_model as build_torch_model
from pybench.worker.backends.torch.attention import sequence_masks
from pybench.worker.backends.transformers.entry import (
    TransformersGeneration,
    _placement,
    build_model,
    layers_by_gpu,
    state_dict,
)
from tests.builders import TINY
from tests.worker.conftest import steps_of
from tests.worker.torch.train_ranks import FAMILY_SHAPES
from tests.worker.torch.train_ranks import TINY as DECODER

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {"batch_size": 4, "prompt_tokens": 5, "output_tokens": 4}


def settings(backend: BackendName = "transformers", **more: Any) -> Generate:
    return Generate(**{"backend": backend, "model": "tiny", "dtype": "float32", **SIZES, **more})


@pytest.mark.parametrize("degree", [1, 2])
def test_ranks_of_a_tensor_parallel_model_tell_of_the_whole_batch(
    run_worker: Any, architecture: dict[str, Any], degree: int
) -> None:
    """4 sequences of 5 prompt and 4 output tokens, each round's end within the step."""
    code, streams, log = run_worker(settings(tensor_parallel=degree), architecture, degree)
    assert (code, len(streams)) == (0, degree), log
    for events in streams:
        assert isinstance(events[-1], Result)
        steps = steps_of(events)
        assert [(s.work.prompt_tokens, s.work.output_tokens, s.work.samples) for s in steps] == [(20, 16, 4)] * 2
        for step in steps:
            ends = (step.start_ns, *step.token_end_ns, step.end_ns)
            assert len(step.token_end_ns) == 4
            assert list(ends) == sorted(ends)
        assert "peak_memory_bytes" in {event.name for event in events if isinstance(event, Metric)}


@pytest.mark.parametrize("backend", ["transformers", "torch"])
def test_copies_share_the_samples(run_worker: Any, architecture: dict[str, Any], backend: BackendName) -> None:
    """Two replicas of two sequences each; their headers have different numbers."""
    code, streams, log = run_worker(settings(backend, data_parallel=2), architecture, 2)
    assert code == 0, log
    headers = [event for events in streams for event in events if isinstance(event, Header)]
    assert [header.replica for header in headers] == [0, 1]
    steps = [step for events in streams for step in steps_of(events)]
    assert [(step.work.samples, step.work.output_tokens) for step in steps] == [(2, 8)] * 4


def test_copies_of_split_models(run_worker: Any, architecture: dict[str, Any]) -> None:
    """Ranks 0 and 1 are the first copy, 2 and 3 the second."""
    code, streams, log = run_worker(settings("torch", data_parallel=2, tensor_parallel=2), architecture, 4)
    assert code == 0, log
    headers = [event for events in streams for event in events if isinstance(event, Header)]
    assert [header.replica for header in headers] == [0, 0, 1, 1]


def test_copies_generate_what_one_model_would(architecture: dict[str, Any]) -> None:
    """The halves of the batch, in order; and greedy decoding is the argmax of a full forward pass."""
    alone = settings()
    model = build_model(architecture, alone, CPU)
    whole = TransformersGeneration(alone, model, CPU, 0)
    whole.step(1)
    halves = []
    for replica in (0, 1):
        half = TransformersGeneration(settings(data_parallel=2), model, CPU, replica)
        half.step(1)
        halves.append(half.output)
    assert torch.equal(torch.cat(halves), whole.output)
    tokens = whole.prompts(1)
    with torch.no_grad():
        for _ in range(4):
            tokens = torch.cat([tokens, model(input_ids=tokens).logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(tokens[:, 5:], whole.output)


FAMILIES: dict[str, dict[str, Any]] = {
    "gemma": {**FAMILY_SHAPES["gemma"], "num_key_value_heads": 1},
    # Caps so low that every score and logit feels them.
    "gemma2": {
        "model_type": "gemma2",
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 4,
        "attn_logit_softcapping": 0.01,
        "final_logit_softcapping": 0.05,
        "tie_word_embeddings": True,
    },
    "phi3": FAMILY_SHAPES["phi3"],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_other_families_generate_what_their_layers_compute(family: str) -> None:
    """Greedily over the library's cache; where the torch backend has the family, from the same logits."""
    shape = {**DECODER, **FAMILIES[family]}
    model = build_model(shape, settings(), CPU)
    work = TransformersGeneration(settings(), model, CPU, 0)
    assert work.step(0).work.output_tokens == SIZES["batch_size"] * SIZES["output_tokens"]
    tokens = torch.cat([work.prompts(0), work.output], dim=1)
    with torch.no_grad():
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    assert torch.equal(work.output, logits[:, -SIZES["output_tokens"] :].argmax(-1))
    if family in TORCH_FAMILIES:
        ours: Any = build_torch_model(shape, torch.float32, CPU, 0)
        ours.load_state_dict(model.state_dict())
        masks = sequence_masks(ours.config, tokens.shape[1] - 1, CPU)
        found = ours(input_ids=tokens[:, :-1], attention_mask=masks, use_cache=False).logits
        torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-5)


def test_scores_and_logits_are_capped() -> None:
    """Gemma 2: the cap of attention changes what it gives, which torch's own kernel would leave out."""
    shape = {**DECODER, **FAMILIES["gemma2"]}
    model = build_model(shape, settings(), CPU)
    tokens = torch.arange(12)[None]
    with torch.no_grad():
        capped = model(input_ids=tokens).logits
        for layer in model.model.layers:
            layer.self_attn.attn_logit_softcapping = None
        free = model(input_ids=tokens).logits
    assert float(capped.abs().max()) <= 0.05 * (1 + 1e-6)
    assert not torch.allclose(capped, free, rtol=1e-3)


def test_weights_belong_to_their_names(architecture: dict[str, Any]) -> None:
    """The same on every rank, other with another seed; large ones repeat a block, norms are 1."""
    model = build_model(architecture, settings(), CPU)
    kind, config = type(model), model.config
    first, again, other = (state_dict(kind, config, torch.float32, seed) for seed in (0, 0, 1))
    name = "model.layers.0.self_attn.q_proj.weight"
    assert torch.equal(first[name], again[name])
    assert not torch.equal(first[name], other[name])
    assert not torch.equal(first[name], first[name.replace("layers.0", "layers.1")])
    assert bool((first["model.norm.weight"] == 1).all())
    assert float(first["lm_head.weight"].std()) == pytest.approx(0.02, rel=0.1)


CONFIG = LlamaConfig(**{**{key: value for key, value in TINY.items() if key != "model_type"}, "num_hidden_layers": 4})


@pytest.mark.parametrize("device_map", ["auto", "sequential"])
def test_layers_are_spread_the_way_that_was_asked_for(device_map: Any) -> None:
    """By the library's own names; one device takes all."""
    spread = settings(pipeline_parallel=2, device_map=device_map)
    assert _placement(spread, torch.device("cuda", 0)) == {"device_map": device_map}
    assert _placement(settings(), CPU) == {"device_map": {"": CPU}}


@pytest.mark.parametrize(
    ("devices", "layers"),
    [
        (("cuda:0", "cuda:0", "cuda:2", "meta"), {0: 2, 1: 0, 2: 1}),
        (("cuda:1",) * 4, {0: 0, 1: 4, 2: 0}),
        (("cpu",) * 4, {0: 0, 1: 0, 2: 0}),
    ],
    ids=["one in host memory", "all on one GPU", "none on a GPU"],
)
def test_layers_are_counted_by_gpu(devices: tuple[str, ...], layers: dict[int, int]) -> None:
    """Layers are counted by the device of their weights, since a model on one GPU has no map."""
    with torch.device("meta"):
        model = LlamaForCausalLM(CONFIG)

    def named_parameters() -> Iterator[tuple[str, SimpleNamespace]]:
        for name, _ in model.named_parameters():
            layer = re.search(r"layers\.(\d+)", name)
            yield name, SimpleNamespace(device=torch.device(devices[int(layer[1])] if layer else "cuda:0"))

    assert layers_by_gpu(SimpleNamespace(named_parameters=named_parameters), 3) == layers


def test_unknown_family_is_unsupported(run_worker: Any, architecture: dict[str, Any]) -> None:
    """The failure names the family and the known ones."""
    code, [events], _ = run_worker(settings(), {**architecture, "model_type": "gpt_oss"})
    failure = events[-1]
    assert isinstance(failure, Failure)
    assert (code, failure.cause) == (1, "unsupported")
    known = "llama, mistral, qwen2, qwen3, gemma, gemma2, phi3"
    assert failure.message == f"model_type 'gpt_oss': the transformers backend knows {known}"


def test_weights_of_four_bits(architecture: dict[str, Any]) -> None:
    """By the library's own loader: every projection packed, the head not; tokens come from it."""
    pytest.importorskip("bitsandbytes")
    model = build_model(architecture, settings(quantization="bitsandbytes"), CPU)
    projection = model.model.layers[0].mlp.up_proj.weight
    assert (projection.dtype, projection.numel()) == (torch.uint8, 64 * 128 // 2)
    assert projection.quant_state.quant_type == "nf4"
    assert model.lm_head.weight.dtype == torch.float32
    work = TransformersGeneration(settings(quantization="bitsandbytes"), model, CPU, 0)
    assert work.step(0).work.output_tokens == SIZES["batch_size"] * SIZES["output_tokens"]
