"""Every layer split over the ranks (Megatron-LM, arXiv:1909.08053), norms along the sequence (arXiv:2205.05198)."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed import ProcessGroup
from torch.distributed._symmetric_memory import enable_symm_mem_for_group
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

from pybench.worker.backends.common_torch.samples import IGNORED
from pybench.worker.backends.torch.tensor_parallel import (
    columns,
    copied,
    first_row,
    gathered,
    own_places,
    read_whole,
    share_norm,
    split_linears,
    split_vocabulary,
    sum_gradients,
)
from pybench.worker.backends.torch.train.learner import Learner, Task, WholeModel, device_mesh
from pybench.worker.backends.torch.train.model import compile_layers, layers_of, refuse_tied, trainable_model
from pybench.worker.backends.torch.train.update import return_loss


def learner(task: Task) -> Learner:
    """Every rank sees every sample with its part of each layer."""
    settings = task.settings
    model, weights = trainable_model(task)
    before_update = None
    if settings.tensor_parallel > 1:
        mesh = device_mesh(task)["tensor_parallel"]
        split_layers(task, model, mesh)
        before_update = partial(sum_gradients, model, mesh.get_group())
    weights.fill()
    compile_layers(task, model)
    return WholeModel(task, model, same_loss_on=settings.tensor_parallel, before_update=before_update)


def split_layers(task: Task, model: nn.Module, mesh: DeviceMesh) -> None:
    """Split an empty model's layers and head over ``mesh``.

    Raises :class:`~pybench.worker.backend.UnsupportedError` for a head tied to its embedding.
    """
    config: Any = model.config
    refuse_tied(config, "tensor_parallel")
    along, group = bool(task.settings.sequence_parallel), mesh.get_group()
    if along:
        split_vocabulary(model.get_submodule("model.embed_tokens"), mesh)
        share_norm(model.get_submodule("model.norm"), mesh)
    head: Any = model.lm_head
    layouts = Shard(1) if along else Replicate()
    parallelize_module(head, mesh, ColwiseParallel(input_layouts=layouts, output_layouts=Replicate()))
    for layer in layers_of(model).values():
        split_linears(layer, mesh, tokens_split=along)
        for name, module in layer.named_modules():
            # A norm inside attention sees this rank's heads only, so that its gradient is a part of the whole, too.
            if "RMSNorm" in type(module).__name__ and (along or name.startswith("self_attn.")):
                share_norm(module, mesh)
        for block in ("self_attn", "mlp"):
            # Once for all projections that read it: else each of their gradients would be reduced alone.
            read_whole(layer.get_submodule(block), group, tokens_split=along)
    # Called with labels, the model returns its loss; each rank computes its part of the vocabulary.
    first, whole_states = first_row(head.weight.shape[0], group), gathered if along else copied
    return_loss(
        model,
        lambda hidden, labels: split_loss(columns(head, hidden), labels, first, group),
        task.settings.loss_chunk_tokens,
        read=lambda hidden: whole_states(hidden, group),
    )
    if task.settings.async_tensor_parallel:
        # The compiler cuts collectives and matrix products into pieces that overlap.
        from torch._inductor import config as of_compiler

        of_compiler._micro_pipeline_tp = True  # noqa: SLF001 - torch has no other switch
        enable_symm_mem_for_group(group.group_name)
        distributed.barrier(group)


# Cross-entropy over a vocabulary that ranks share (Megatron-LM, arXiv:1909.08053, section 3): no rank has all logits.
#
# The whole logits of a long batch would have to be gathered, and need more memory than a rank's part of the model.


def split_loss(logits: torch.Tensor, labels: torch.Tensor, first: int, group: ProcessGroup) -> torch.Tensor:
    """Sum over all labels, in nats and float32, the same on each rank of ``group``.

    ``logits`` are this rank's, of shape (tokens, part of the vocabulary), which starts at token ``first``; ``labels``
    are of shape (tokens,), :data:`~pybench.worker.backends.common_torch.samples.IGNORED` for a token without a label.
    """
    loss: torch.Tensor = _SplitLoss.apply(logits, labels, first, group)  # type: ignore[no-untyped-call]
    return loss


class _SplitLoss(torch.autograd.Function):
    """Six bytes for each of this rank's logits of two: themselves and float32, then that and the gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor, first: int, group: ProcessGroup) -> torch.Tensor:
        largest = logits.amax(-1).float()
        distributed.all_reduce(largest, distributed.ReduceOp.MAX, group=group)
        shifted = logits - largest[:, None]
        places, here = own_places(labels, first, logits.shape[-1])
        places = places[:, None]
        picked = shifted.gather(-1, places)[:, 0] * here
        probabilities = shifted.exp_()
        sums = torch.stack([probabilities.sum(-1), picked])
        distributed.all_reduce(sums, group=group)
        probabilities /= sums[0, :, None]
        labelled = labels != IGNORED
        ctx.save_for_backward(probabilities, places, here, labelled)
        ctx.dtype = logits.dtype
        return ((sums[0].log() - sums[1]) * labelled).sum()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        probabilities, places, here, labelled = ctx.saved_tensors
        probabilities.scatter_add_(-1, places, -here[:, None].to(probabilities.dtype))
        probabilities *= (gradient * labelled)[:, None]
        return probabilities.to(ctx.dtype), None, None, None
