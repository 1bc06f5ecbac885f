"""Digests, buckets and places of weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("safetensors")

from pybench.worker.backends.torch.train.learner import Batch
from pybench.worker.backends.turn import delivery
from pybench.worker.backends.turn.delivery import HandoverFolder, digest, peft_name, read
from pybench.worker.backends.turn.trainer import Parked, advantages, policy_loss
from pybench.worker.backends.vllm.worker import Layout, cut


def test_equal_bits_have_equal_digests_wherever_they_lie() -> None:
    """A view with other strides, and a copy."""
    whole = torch.arange(24, dtype=torch.bfloat16).view(4, 6)
    assert digest(whole[:, 2:4]) == digest(whole[:, 2:4].clone())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_other_bit_or_place_has_another_digest(dtype: torch.dtype) -> None:
    """One unit in the last place, two exchanged elements, a zero's sign, and NaN."""
    first = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=dtype)
    others = [[-0.0, 1.0, 2.0, 3.0], [0.0, 2.0, 1.0, 3.0], [0.0, 1.0, 2.0, 3.015625], [0.0, 1.0, 2.0, float("nan")]]
    digests = {digest(first), *(digest(torch.tensor(other, dtype=dtype)) for other in others)}
    assert len(digests) == 5


def test_a_file_has_each_turns_own_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file stays, what it holds does not.

    A weight need not be one block of memory, may need its gradient, and may share memory with another.
    """
    monkeypatch.setattr(delivery, "_MEMORY_FOLDER", tmp_path)
    folder = HandoverFolder(100)
    files = set()
    for turn in (1.0, 2.0, 3.0):
        shared = torch.full((6,), turn)
        sent = {
            "part": shared[:2],
            "rest": shared[2:],
            "a": torch.full((3, 4), turn, requires_grad=True),
            "b": torch.full((4, 2), turn).bfloat16().t(),
            "c": torch.full((1,), turn, dtype=torch.uint8),
        }
        file = folder.write(sent.items(), None)
        files.add((file, file.stat().st_ino))
        found = dict(read(file, torch.device("cpu")))
        assert found.keys() == sent.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in sent.items())
    assert len(files) == 1
    folder.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("free", "in_memory"), [(109, False), (112, True)])
def test_a_file_lies_in_shared_memory_where_it_has_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, in_memory: bool
) -> None:
    """A tenth more than its own size; else in the working directory."""
    shared, working = tmp_path / "shm", tmp_path / "attempt"
    for folder in (shared, working):
        folder.mkdir()
    monkeypatch.chdir(working)
    monkeypatch.setattr(delivery, "_MEMORY_FOLDER", shared)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))
    assert HandoverFolder(100).path.parent == (shared if in_memory else working)


def test_parked_tensors_come_back_under_all_their_views() -> None:
    """They have their values again if a copy was kept; a view shows the same memory."""
    tensor = torch.arange(10.0)
    view, parked = tensor[3:], Parked([tensor])
    parked.leave(keep=True)
    assert tensor.untyped_storage().nbytes() == 0
    parked.come_back()
    assert torch.equal(view, torch.arange(3.0, 10.0))
    view.fill_(1.0)
    assert tensor[4] == 1.0


def test_advantages_are_relative_to_the_group() -> None:
    """Rewards 0 and 1: one standard deviation below and above the mean, in each group."""
    assert advantages(4, 2).tolist() == [-1.0, 1.0, -1.0, 1.0]


def test_a_policys_gradient_weighs_each_answer_by_its_advantage() -> None:
    """The gradient is cross-entropy's, softmax less 1 at the label, times the advantage; 0 for prompts."""
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 5, requires_grad=True)
    labels = torch.tensor([[-100, 1, 2], [-100, 3, 0]])
    weights = torch.tensor([-1.0, 0.5])
    policy_loss(logits, Batch(labels, labels, torch.arange(3)[None], weights)).backward()  # type: ignore[no-untyped-call]
    places = torch.nn.functional.one_hot(labels.clamp(min=0), 5)
    expected = weights[:, None, None] * (logits.detach().softmax(dim=-1) - places)
    expected[:, 0] = 0
    torch.testing.assert_close(logits.grad, expected)


def test_an_adapters_name_in_a_file() -> None:
    """As peft writes it."""
    found = peft_name("model.layers.0.mlp.up_proj.lora_A.default.weight")
    assert found == "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"


# 4 heads of width 2, of which 2 have keys and values; 12 units inside.
ARCHITECTURE: dict[str, Any] = {
    "hidden_size": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 12,
}
LAYER = "model.layers.0"


def _fused(names: list[str], rows: list[int], shard: int, num_shards: int) -> dict[str, torch.Tensor]:
    """A shard of a fused layer as vLLM makes it: each layer's share of rows, one below the other."""
    wholes = {name: torch.randn(size, 8) for name, size in zip(names, rows, strict=True)}
    shares = [whole.chunk(num_shards)[shard] for whole in wholes.values()]
    return {**wholes, "held": torch.cat(shares)}


@pytest.mark.parametrize("shard", [0, 1])
@pytest.mark.parametrize(
    ("fused", "names", "rows"),
    [
        ("self_attn.qkv_proj", ["q_proj", "k_proj", "v_proj"], [8, 4, 4]),
        ("mlp.gate_up_proj", ["gate_proj", "up_proj"], [12, 12]),
    ],
)
def test_fused_layers_hold_each_layers_rows(fused: str, names: list[str], rows: list[int], shard: int) -> None:
    """On both of two shards every projection is found where it lies."""
    layout, tensors = Layout(ARCHITECTURE, shard, 2), _fused(names, rows, shard, 2)
    owner = fused.split(".", maxsplit=1)[0]
    for name in names:
        place = layout.slice_of(f"{LAYER}.{owner}.{name}.weight", tuple(tensors[name].shape))
        assert place.parameter == f"{LAYER}.{fused}.weight"
        held = tensors["held"].narrow(place.dim, place.offset, place.length)
        assert torch.equal(held, cut(tensors[name], place))


def test_layers_after_a_split_are_split_along_what_they_read() -> None:
    """The second half of the columns; norms are whole everywhere."""
    layout, whole = Layout(ARCHITECTURE, 1, 2), torch.randn(8, 12)
    assert torch.equal(cut(whole, layout.slice_of(f"{LAYER}.mlp.down_proj.weight", (8, 12))), whole[:, 6:])
    norm = torch.randn(8)
    assert torch.equal(cut(norm, layout.slice_of(f"{LAYER}.input_layernorm.weight", (8,))), norm)


def test_the_vocabulary_is_padded_before_it_is_split() -> None:
    """100 rows are padded to 128: 64 on the first shard, 36 on the second."""
    whole = torch.randn(100, 8)
    lengths = [
        len(cut(whole, Layout(ARCHITECTURE, shard, 2).slice_of("lm_head.weight", (100, 8)))) for shard in range(2)
    ]
    assert lengths == [64, 36]


def test_adapters_halves_go_with_their_layer() -> None:
    """Of a split by columns the second half is split, of one by rows the first."""
    layout = Layout(ARCHITECTURE, 1, 2)
    key = layout.slice_of(f"{LAYER}.self_attn.k_proj.lora_B.default.weight", (4, 3))
    assert (key.parameter, key.half, key.place) == (f"{LAYER}.self_attn.qkv_proj", "b", 1)
    assert (key.dim, key.start, key.length) == (0, 2, 2)
    down = layout.slice_of(f"{LAYER}.mlp.down_proj.lora_A.default.weight", (3, 12))
    assert (down.parameter, down.half, down.dim, down.start, down.length) == (f"{LAYER}.mlp.down_proj", "a", 1, 6, 6)
    base = layout.slice_of(f"{LAYER}.mlp.down_proj.base_layer.weight", (8, 12))
    assert (base.parameter, base.half) == (f"{LAYER}.mlp.down_proj.weight", "")
