"""What backward computes again of a layer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from pybench.worker.backends.torch.train.model import checkpoint_layers


class Layer(nn.Module):
    """Two products with cheap operations between them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16, bias=False)
        self.down = nn.Linear(16, 8, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of shape (tokens, 8)."""
        down: torch.Tensor = self.down(nn.functional.silu(self.up(hidden)))
        return hidden + down


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_a_compiled_layer_computes_no_product_again() -> None:
    """Backward has two products for each of the two; what selective checkpointing keeps are their results."""
    torch.manual_seed(0)
    layer, plain = Layer(), Layer()
    plain.load_state_dict(layer.state_dict())
    checkpoint_layers(SimpleNamespace(model=SimpleNamespace(layers=[layer])), "selective", compiled=True)
    layer.compile(backend="aot_eager_decomp_partition")
    hidden = torch.randn(4, 8, requires_grad=True)
    loss = layer(hidden).square().sum()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        loss.backward()
    counts = {event.key: event.count for event in found.key_averages()}
    assert counts["aten::mm"] == 4
    plain(hidden).square().sum().backward()
    for own, other in zip(layer.parameters(), plain.parameters(), strict=True):
        assert own.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(own.grad, other.grad)
