"""Numbers that must not depend on how the work is split."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
import torch

from pybench.model.wire import Step
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.train import Train
from pybench.worker.backends.torch.architecture import build_model
from pybench.worker.backends.torch.generate import Generation
from pybench.worker.backends.torch.process_group import TorchRanks
from pybench.worker.backends.torch.train import Training

CPU = torch.device("cpu")
TOKENS = torch.arange(12).reshape(2, 6) * 7


TINY: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 128,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "gemma3_text": {"head_dim": 16, "sliding_window": 4, "tie_word_embeddings": True},
}


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two real gloo ranks computed."""
    out = tmp_path_factory.mktemp("ranks") / "saved.pt"
    shapes = {family: {**TINY, "model_type": family, **more} for family, more in FAMILIES.items()}
    script = Path(__file__).with_name("two_ranks.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    arguments = [json.dumps(shapes), json.dumps(TOKENS.tolist()), str(out)]
    done = subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    saved: dict[str, Any] = torch.load(out)
    return saved


@pytest.mark.parametrize("family", FAMILIES)
def test_split_model_has_whole_models_logits(two_ranks: dict[str, Any], family: str) -> None:
    """Two halves agree with the whole; halves of two different models do not, so this test can fail."""
    whole_model: Any = build_model({**TINY, "model_type": family, **FAMILIES[family]}, torch.float32, CPU, 0)
    with torch.no_grad():
        whole = whole_model(input_ids=TOKENS).logits
    torch.testing.assert_close(two_ranks["split"][family], whole, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(two_ranks["broken"][family], whole, rtol=1e-2, atol=1e-3)


def test_ddp_gradients_are_those_of_the_joint_batch(two_ranks: dict[str, Any]) -> None:
    """Each rank saw half of the samples; the averaged gradient is the single process's."""
    settings = Train(backend="torch", model="tiny", dtype="float32", global_batch_size=4, sequence_tokens=8)
    model: Any = build_model({**TINY, "model_type": "llama"}, torch.float32, CPU, 0).train()
    alone = Training(settings, model, model.config, TorchRanks(0, 1, CPU))
    alone.backward(alone.batch(0))
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert gradients.keys() == two_ranks["gradients"].keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(two_ranks["gradients"][name], gradient, rtol=1e-4, atol=1e-6)


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
    work = Generation(settings, model, config, CPU)
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


def test_two_training_ranks_follow_one(run_worker: Any, architecture: dict[str, Any], tmp_path: Any) -> None:
    """The ranks' mean loss follows the joint batch's after updates, which needs averaged gradients."""
    losses = {}
    for ranks in (1, 2):
        settings = Train(
            backend="torch",
            model="tiny",
            dtype="float32",
            data_parallel=ranks,
            global_batch_size=4,
            sequence_tokens=8,
            learning_rate=1e-2,
        )
        code, streams, log = run_worker(settings, architecture, ranks)
        assert code == 0, log
        (tmp_path / "exchange").rename(tmp_path / f"exchange-{ranks}")
        rows: list[dict[int, Any]] = [{e.index: e.loss for e in events if isinstance(e, Step)} for events in streams]
        losses[ranks] = {index: sum(row[index] for row in rows) / ranks for index in rows[0]}
    shared = losses[1].keys() & losses[2].keys()
    assert len(shared) >= 4
    assert [losses[2][i] for i in sorted(shared)] == pytest.approx([losses[1][i] for i in sorted(shared)], rel=1e-3)
