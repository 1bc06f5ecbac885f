"""Layers in stages, one or more for each rank; a replica's batch in microbatches (torch.distributed.pipelining)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.pipelining.schedules import PipelineScheduleMulti

from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.stage_layers import stage_layers
from pybench.worker.backends.common_torch.process_group import RoundClock
from pybench.worker.backends.torch.attention import sequence_masks
from pybench.worker.backends.torch.train.learner import Batch, Learner, Portion, Task, device_mesh
from pybench.worker.backends.torch.train.model import refuse_tied, trainable_model
from pybench.worker.backends.torch.train.strategies.ddp import replicated
from pybench.worker.backends.torch.train.update import optimizer_of, summed_loss


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
    config = copy.deepcopy(body.config)  # the library reads types of layers from it
    config.num_hidden_layers = end - first
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[first:end]
    body.config = config
    body.layers = nn.ModuleList(list(body.layers)[first:end])
    if index > 0:
        body.embed_tokens = None
    if index < count - 1:
        body.norm = nn.Identity()
        model.lm_head = None
    weights.fill()
    return Stage(body, model.lm_head, task, embeds=index == 0)


_NS_PER_S = 1e9
_SCHEDULES: dict[str, Any] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved_1f1b": ScheduleInterleaved1F1B,
}


class Pipeline(Learner):
    """A pipeline in each replica: this rank's stages and the schedule that walks through them.

    Replicas average their stages' gradients as DDP does. ``layer_split`` is the naive pipeline, as
    ``device_map="auto"`` within one process: the whole batch goes through one rank's layers after the other, so one GPU
    works at a time.
    """

    def __init__(self, task: Task) -> None:
        settings = task.settings
        schedule, microbatches = settings.schedule or "1f1b", settings.num_microbatches
        if settings.strategy == "layer_split":
            schedule, microbatches = "gpipe", 1
        mesh, ranks = device_mesh(task), settings.pipeline_parallel
        self.portion = Portion(replica=mesh.get_local_rank("data_parallel"))
        self.averaged_over = task.settings.data_parallel
        self._device = task.ranks.device
        self._scale = 1.0
        self._clock = RoundClock(task.ranks.device)
        count = ranks * (settings.stages_per_rank or 1)
        samples = settings.micro_batch_size // microbatches
        stages: list[Any] = []
        # This rank's stages, round the pipeline once and again. Their shapes are given: to find them out, a stage would
        # run once more, which DDP takes for a step.
        for index in range(mesh.get_local_rank("pipeline_parallel"), count, ranks):
            module = stage_module(task, index, count)
            if settings.data_parallel > 1:
                module = replicated(task, module, mesh.get_group("data_parallel"))
            given, made = _between(task, samples, index), _between(task, samples, index + 1, count)
            group = mesh.get_group("pipeline_parallel")
            options: dict[str, Any] = {"input_args": given, "output_args": made, "group": group}
            stage: Any = PipelineStage(module, index, count, self._device, **options)
            # A stage has received its input before each of these parts.
            stage.forward_one_chunk = self._busy()(stage.forward_one_chunk)
            # A step's last microbatch also waits for gradients of other replicas.
            stage.backward_one_chunk = self._busy()(stage.backward_one_chunk)
            stages.append(stage)
        self.model = nn.ModuleList(stage.submod for stage in stages)
        self._is_first = stages[0].is_first
        self._is_last = stages[-1].is_last
        self._optimizer = optimizer_of(self.parameters(), task.settings)
        options = {"n_microbatches": microbatches, "loss_fn": self._loss, "scale_grads": False}
        kind = _SCHEDULES[schedule]
        self._schedule: Any = kind(stages if issubclass(kind, PipelineScheduleMulti) else stages[0], **options)

    def backward(self, batch: Batch, scale: float, *, last: bool) -> torch.Tensor:  # noqa: ARG002 - replicas sync each pass
        """One walk of all microbatches, forward and backward; the last stage's rank knows their losses."""
        self._scale = scale
        losses: list[torch.Tensor] = []
        inputs = (batch.tokens,) if self._is_first else ()
        last_stage = {"target": batch.labels, "losses": losses} if self._is_last else {}
        self._schedule.step(*inputs, **last_stage)
        return torch.stack(losses).sum().detach() / scale if losses else torch.zeros((), device=self._device)

    def update(self) -> None:
        """Step and clear."""
        with self._busy():
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)

    def values(self) -> dict[str, float]:
        """How long this rank's stages computed in the last step."""
        marks_ns = self._clock.read()
        self._clock = RoundClock(self._device)
        taken_ns = sum(end - begin for begin, end in zip(marks_ns[::2], marks_ns[1::2], strict=True))
        return {"stage_busy_s": taken_ns / _NS_PER_S}

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """Time a part of a step in which the device computes. Parts do not overlap.

        On a GPU the computing stream is timed: it waits for what others send before a part begins.
        """
        self._clock.mark()
        yield
        self._clock.mark()

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with self._busy():
            return summed_loss(logits, labels) * self._scale


def _between(task: Task, samples: int, index: int, count: int | None = None) -> torch.Tensor:
    """Shape and type of the input of stage ``index``: tokens, hidden states, or behind the last stage logits."""
    shape = (samples, task.settings.sequence_tokens)
    if index == 0:
        return torch.empty(shape, dtype=torch.long, device="meta")
    width = task.architecture["vocab_size" if index == count else "hidden_size"]
    return torch.empty((*shape, width), dtype=task.dtype, device="meta", requires_grad=True)


learner = Pipeline
