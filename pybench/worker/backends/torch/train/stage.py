"""One stage of a model: some of its layers, with the embedding in the first and the head in the last."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.stage_layers import stage_layers
from pybench.worker.backends.torch.attention import sequence_masks
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.backends.torch.train.model import refuse_tied, trainable_model


class Stage(nn.Module):
    """Tokens or hidden states in, hidden states or logits out."""

    def __init__(self, body: Any, head: nn.Module | None, task: Task, *, embeds: bool) -> None:
        super().__init__()
        self.body = body
        self.head = head
        self._embeds = embeds
        self._masks = sequence_masks(body.config, task.settings.sequence_tokens, task.ranks.device)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Run the layers."""
        inputs = {"input_ids" if self._embeds else "inputs_embeds": given}
        hidden: torch.Tensor = self.body(attention_mask=self._masks, use_cache=False, **inputs).last_hidden_state
        return self.head(hidden) if self.head is not None else hidden


def stage_module(task: Task, index: int, count: int) -> nn.Module:
    """Stage ``index`` of ``count``, on the rank's device; the other stages' weights never take memory."""
    model, weights = trainable_model(task)
    if count > 1:
        refuse_tied(model.config, "a pipeline")
    body = model.model
    layers = stage_layers(task.settings, DecoderShape.from_config(task.architecture))
    first, end = sum(layers[:index]), sum(layers[: index + 1])
    kept = [f"model.layers.{number}" for number in range(first, end)]
    kept += ["model.embed_tokens"] if index == 0 else []
    kept += ["model.norm", "lm_head"] if index == count - 1 else []
    for name in kept:
        weights.fill_parameters(name)
    _cut(body, first, end, embeds=index == 0, norms=index == count - 1)
    if index < count - 1:
        model.lm_head = None
    weights.fill()
    return Stage(body, model.lm_head, task, embeds=index == 0)


def _cut(body: Any, first: int, end: int, *, embeds: bool, norms: bool) -> None:
    """Leave the layers from ``first`` to before ``end``, also in the config that the library reads types from."""
    config = copy.deepcopy(body.config)
    config.num_hidden_layers = end - first
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[first:end]
    body.config = config
    body.layers = nn.ModuleList(list(body.layers)[first:end])
    if not embeds:
        body.embed_tokens = None
    if not norms:
        body.norm = nn.Identity()
