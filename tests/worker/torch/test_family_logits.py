"""Each family's model, built here, against the library's own of the same config and weights."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from pybench.model.workloads.generate import Generate
from pybench.worker.backends.torch.architecture import FAMILIES, build_model
from pybench.worker.backends.torch.attention import sequence_masks
from pybench.worker.backends.torch.generate import Generation
from tests.worker.torch.train_ranks import FAMILY_SHAPES, TINY

CPU = torch.device("cpu")


def built(family: str) -> tuple[Any, nn.Module]:
    """Ours, and the library's with its own masks, attention and loop over experts. Sinks and routers differ by head."""
    shape = {**TINY, **FAMILY_SHAPES[family]}
    ours: Any = build_model(shape, torch.float32, CPU, 0)
    for name, weight in ours.named_parameters():
        if name.endswith(("sinks", "router.weight", "bias")):
            nn.init.normal_(weight, generator=torch.Generator().manual_seed(len(name)))
    config = AutoConfig.for_model(family, **{key: value for key, value in shape.items() if key != "model_type"})
    options = {"experts_implementation": "eager"} if family == "gpt_oss" else {}
    build: Any = AutoModelForCausalLM.from_config
    theirs: nn.Module = build(config, dtype=torch.float32, attn_implementation="eager", **options)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def test_every_family_is_here() -> None:
    """A family that is added gets its tiny shape, and so the tests below."""
    assert set(FAMILY_SHAPES) == set(FAMILIES)


@pytest.mark.parametrize("tokens", [13, 32])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients_are_the_librarys(family: str, tokens: int) -> None:
    """Of sequences that windows of 4 tokens divide, and that they do not: by blocks, and by a mask."""
    ours, theirs = built(family)
    samples = torch.randint(0, TINY["vocab_size"], (3, tokens), generator=torch.Generator().manual_seed(1))
    masks, positions = sequence_masks(ours.config, tokens, CPU), torch.arange(tokens)[None]
    found = ours(input_ids=samples, attention_mask=masks, position_ids=positions, use_cache=False).logits
    expected = theirs(input_ids=samples, use_cache=False).logits
    assert expected.std() > 0.01, "logits that hardly differ show nothing"
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for logits in (found, expected):
        logits.square().sum().backward()
    for (name, weight), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert weight.grad is not None
        assert other.grad is not None
        assert torch.allclose(weight.grad, other.grad, rtol=1e-3, atol=1e-4), name


@pytest.mark.parametrize("family", FAMILIES)
def test_decoded_tokens_are_the_librarys(family: str) -> None:
    """Greedily over our cache, against the library's model over whole sequences without a cache."""
    ours, theirs = built(family)
    sizes: Any = {"batch_size": 2, "prompt_tokens": 6, "output_tokens": 6}
    settings = Generate(backend="torch", model="tiny", dtype="float32", **sizes)
    work = Generation(settings, ours, CPU)
    work.step(0)
    whole = torch.cat([work.prompts(0), work.output], dim=1)
    with torch.no_grad():
        logits = theirs(input_ids=whole[:, :-1], use_cache=False).logits
    assert torch.equal(work.output, logits[:, -settings.output_tokens :].argmax(dim=-1))
