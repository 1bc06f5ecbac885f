"""The checkpoint that a server loads: transformers reads it, a run writes it once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pybench.model.backend import MODEL_CLASSES
from pybench.model.wire import SHARED_VARIABLE
from pybench.model.workloads.generate import Generate
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.engine import config_folder
from pybench.worker.backends.server import entry
from pybench.worker.backends.server.entry import checkpoint, write_tokenizer
from pybench.worker.ranks import Ranks


@contextmanager
def checkpointed(family: str, folder: Path, seed: int = 0) -> Iterator[Path]:
    """The checkpoint of a small shape."""
    architecture = {"model_type": family, **SMALL}
    with config_folder(architecture, "bfloat16") as model:
        write_tokenizer(model, SMALL["vocab_size"])
        settings = Generate(
            backend="server", server="stub", model="tiny", batch_size=20, prompt_tokens=8, output_tokens=6, seed=seed
        )
        with checkpoint(model, settings, Ranks()) as written:
            assert written.parent == folder
            yield written


SMALL = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2} | {
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "tie_word_embeddings": True
} | {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}  # fmt: skip


@pytest.mark.parametrize("family", MODEL_CLASSES)
def test_transformers_loads_a_written_checkpoint(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every family, from several shards: no weight is missing, none is left over; the seed decides them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SHARED_VARIABLE, str(tmp_path))
    monkeypatch.setattr(entry, "SHARD_BYTES", 2048)
    with checkpointed(family, tmp_path) as folder:
        model, loaded = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        assert len(list(folder.glob("model-*-of-*.safetensors"))) > 2
        assert len(AutoTokenizer.from_pretrained(folder)) == SMALL["vocab_size"]
    assert not any(loaded.values()), loaded
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    with torch.no_grad():
        assert model(torch.tensor([[3, 5]])).logits.isfinite().all()


def test_a_run_has_one_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written once; another seed takes its place; what an attempt broke off is written anew."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SHARED_VARIABLE, str(tmp_path))
    with checkpointed("llama", tmp_path) as first:
        (first / "mark").touch()
    with checkpointed("llama", tmp_path) as again:
        assert (again / "mark").exists()
    first.rename(first.with_suffix(".unfinished"))
    with checkpointed("llama", tmp_path) as written:
        assert not (written / "mark").exists()
    with checkpointed("llama", tmp_path, seed=1) as other:
        assert [path for path in tmp_path.iterdir() if path.name.startswith("checkpoint")] == [other]


def test_a_checkpoint_needs_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written, and the message says where, how much and what next."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SHARED_VARIABLE, str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=1000))
    words = rf"{tmp_path}: a checkpoint needs .*, .* are free; nothing was written: free some, or set TMPDIR"
    with pytest.raises(UnsupportedError, match=words), checkpointed("llama", tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
