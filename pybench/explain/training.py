"""Predicted time of a training step, split by DDP, FSDP, ZeRO, tensor, context or pipeline parallelism.

Counted: products and attention, AdamW's update, DDP's copies into its buckets, and communication. Norms, rotations,
activations and the loss are not counted: ranks share them as they share the products, so the baseline's time above its
prediction scales with the work (:class:`~pybench.explain.step_time.BaselinePhase`).

Sources: FLOPs after PaLM (arXiv:2204.02311, appendix B: backward is twice forward); DDP's overlap of gradient buckets
with backward after Li et al. (arXiv:2006.15704); FSDP's gathers and scatters around each layer after Zhao et al.
(arXiv:2304.11277); ZeRO after Rajbhandari et al. (arXiv:1910.02054); tensor parallelism after Megatron-LM
(arXiv:1909.08053: two all-reduces a layer in forward, two in backward); context parallelism after Llama 3
(arXiv:2407.21783, 3.3.2: keys and values gathered in every layer); the pipeline's bubble after GPipe
(arXiv:1811.06965), of interleaved stages after Narayanan et al. (arXiv:2104.04473, 2.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pybench.core.flops import adapter_parameters, num_parameters
from pybench.core.memory import stored_bytes
from pybench.explain.step_time import NodeRates, StepTime
from pybench.model.decoder_shape import DecoderShape, forward_flops_per_token, step_flops_per_token
from pybench.model.workloads.settings import AUTO, DTYPE_BYTES
from pybench.model.workloads.stage_layers import even_layers, rank_layers, rank_weights, stage_layers
from pybench.model.workloads.train import Train
from pybench.model.workloads.train_rules import STRATEGIES

# All-reduces of a layer in forward, and as many in backward.
_REDUCTIONS_PER_PASS = 2
# AdamW reads weight, gradient and two moments, and writes weight and moments.
_OPTIMIZER_PASSES = 7
# DDP's default bucket, in bytes, and DeepSpeed's default ``reduce_bucket_size``, in gradients.
_DDP_BUCKET_BYTES = 25 * 2**20
_ZERO_BUCKET_ELEMENTS = 5e8
# Share of a collective's time that stays visible when products run at the same time, since it takes multiprocessors and
# memory traffic from them. Fitted: 0.36 to 0.52 for DDP, Accelerate and FSDP on 2 and 4 H200s.
_UNHIDDEN_FRACTION = 0.45


@dataclass(frozen=True)
class TrainingStep:
    """Forward, backward and update of ``samples`` samples over all ranks; sizes are those of one rank."""

    rates: NodeRates
    decoder: DecoderShape
    settings: Train
    samples: float

    def time(self) -> StepTime:
        """Seconds of the step. Raises ``UnmeasuredError``."""
        settings, ranks = self.settings, self._sharing_ranks
        sharing = STRATEGIES[settings.strategy].sharing
        # Bytes moved for each byte of trained weights: by the update of a rank's share, and by copies into DDP's
        # buckets and, without views, back.
        moved = _OPTIMIZER_PASSES / (ranks if sharing in {"fsdp", "zero"} else 1)
        if sharing == "ddp" and ranks > 1:
            moved += 2 * ((not settings.accumulates) if settings.gradient_as_bucket_view else 2)
        forward_s, backward_s = self._computing_s()
        share_s = {"ddp": self._ddp_s, "fsdp": self._fsdp_s, "zero": self._zero_s}[str(sharing)]
        return StepTime(
            compute_s=forward_s + backward_s,
            memory_s=self._trained_bytes * moved / self.rates.memory_bytes_per_s,
            communication_s=share_s(forward_s, backward_s) + self._activations_s() + self._chunks_s(),
        )

    @property
    def _sharing_ranks(self) -> int:
        """Ranks that share gradients: those of every replica and of every chunk of its sequences."""
        return self.settings.data_parallel * self.settings.context_parallel

    @property
    def _of_rank(self) -> float:
        return self.samples / self.settings.data_parallel

    @property
    def _passes(self) -> int:
        """Passes of a step: as set, else as many as a rank's samples need."""
        if self.settings.grad_accum != AUTO:
            return int(self.settings.grad_accum)
        return max(1, round(self._of_rank / self.settings.micro_batch_size))

    @property
    def _layers_of_ranks(self) -> tuple[int, ...]:
        """Layers of each rank of a pipeline."""
        ranks = self.settings.pipeline_parallel
        layers = rank_layers(stage_layers(self.settings, self.decoder), ranks)
        return layers or even_layers(self.decoder.layers, ranks)

    @property
    def _trained_bytes(self) -> float:
        return self._trained * DTYPE_BYTES[self.settings.dtype]

    @property
    def _trained(self) -> float:
        """Parameters that a rank trains; in a pipeline those of the rank that has most, which ends the step."""
        settings = self.settings
        adapters = adapter_parameters(self.decoder, settings)
        if adapters is not None:
            return adapters / (settings.tensor_parallel * settings.pipeline_parallel)
        return max(rank_weights(self.decoder, self._layers_of_ranks)) / settings.tensor_parallel

    def _step_flops(self, decoder: DecoderShape, first: int) -> tuple[float, float]:
        """FLOPs of a token in a layer and in the head; ``first`` is the first position of the mean attention."""
        return step_flops_per_token(
            decoder,
            first,
            self.settings.sequence_tokens,
            recompute=self.settings.activation_checkpointing == "full",
            loss_in_chunks=self.settings.loss_chunk_tokens is not None,
            adapters=self.settings.lora_rank is not None,
        )

    def _computing_s(self) -> tuple[float, float]:
        """Seconds of products and attention: forward, and backward with recomputed layers.

        A token of a causal sequence attends to half of it. A chunk's queries compute all keys, also in sliding layers:
        the mask discards the rest.
        """
        settings = self.settings
        chunked = settings.context_parallel > 1
        decoder = replace(self.decoder, sliding_layers=0) if chunked else self.decoder
        first = settings.sequence_tokens if chunked else 0
        forward = forward_flops_per_token(decoder, first, settings.sequence_tokens)
        layer, head = self._step_flops(decoder, first)
        tokens = self._of_rank * settings.sequence_tokens / settings.context_parallel
        share = self._pipeline_fraction() * tokens / settings.tensor_parallel / self.rates.matmul_flops_per_s
        return forward * share, (layer * decoder.layers + head - forward) * share

    def _pipeline_fraction(self) -> float:
        """Time of the slowest rank and the bubble over the time of all work on one rank: s + (1 - s) / (v m).

        The slowest rank has the share s of the work. The others' share of one of m microbatches passes before and after
        it; of one stage for v interleaved stages a rank. For p equal ranks it is (m + (p - 1) / v) / (m p). The last
        rank computes the head.
        """
        layer, head = self._step_flops(self.decoder, 0)
        *others, last = (layer * count for count in self._layers_of_ranks)
        slowest = max(*others, last + head) / (layer * self.decoder.layers + head) if others else 1.0
        return slowest + (1 - slowest) / ((self.settings.stages_per_rank or 1) * self.settings.num_microbatches)

    def _ddp_s(self, _forward_s: float, backward_s: float) -> float:
        """Visible reductions: the last bucket, full only when backward ends, and the others as far as it hides them."""
        size = self.settings.bucket_cap_mb * 2**20 if self.settings.bucket_cap_mb else _DDP_BUCKET_BYTES
        buckets = max(1.0, self._trained_bytes / size)
        reduce_s = self.rates.collective_s("all_reduce", self._trained_bytes / buckets, self._sharing_ranks)
        return reduce_s + _visible_s((buckets - 1) * reduce_s, backward_s / self._passes * (1 - 1 / buckets))

    def _fsdp_s(self, forward_s: float, backward_s: float) -> float:
        """Layer by layer: gathers and scatters as far as the neighbour's computing does not hide them.

        Each pass gathers the weights again; gradients are scattered in the last pass.
        """
        settings, layers, passes = self.settings, self.decoder.layers, self._passes
        weight_bytes: float = num_parameters(self.decoder) * DTYPE_BYTES[self.settings.dtype]
        if settings.weights == "nf4":
            weight_bytes = stored_bytes(settings, self.decoder)
        weight_bytes /= settings.tensor_parallel * settings.pipeline_parallel
        gather_s = self.rates.collective_s("all_gather", weight_bytes / layers, self._sharing_ranks)
        scatter_s = self.rates.collective_s("reduce_scatter", self._trained_bytes / layers, self._sharing_ranks)
        layer_backward_s = backward_s / passes / layers
        in_forward_s = passes * _visible_s(gather_s, forward_s / passes / layers)
        in_backward_s = (passes - 1) * _visible_s(gather_s, layer_backward_s)
        in_last_s = _visible_s(gather_s + scatter_s, layer_backward_s)
        return passes * gather_s + scatter_s + (layers - 1) * (in_forward_s + in_backward_s + in_last_s)

    def _zero_s(self, _forward_s: float, _backward_s: float) -> float:
        """ZeRO's stages 1 and 2 in DeepSpeed: gradients all-reduced in buckets, then the updated weights gathered.

        ``overlap_comm`` is off by default: the reductions run in the stream of backward, and nothing hides them.
        """
        buckets = max(1.0, self._trained / _ZERO_BUCKET_ELEMENTS)
        reduce_s = self.rates.collective_s("all_reduce", self._trained_bytes / buckets, self._sharing_ranks)
        return buckets * reduce_s + self.rates.collective_s("all_gather", self._trained_bytes, self._sharing_ranks)

    def _activations_s(self) -> float:
        """Activations: reduced in every layer and for the head, sent on by each stage, and their gradients back."""
        settings = self.settings
        tokens = self._of_rank / self._passes * settings.sequence_tokens
        activations = tokens * self.decoder.hidden * DTYPE_BYTES[self.settings.dtype]
        recomputes = settings.activation_checkpointing == "full"
        reductions = _REDUCTIONS_PER_PASS * (2 + recomputes) * self.decoder.layers + 1
        reduce_s = self.rates.collective_s("all_reduce", activations, settings.tensor_parallel)
        send_s = 0.0
        if settings.pipeline_parallel > 1:
            send_s = 2 * (settings.stages_per_rank or 1) * self.rates.send_s(activations)
        return self._passes * (reductions / settings.pipeline_parallel * reduce_s + send_s)

    def _chunks_s(self) -> float:
        """Keys and values: gathered before the attention of every layer, their gradients scattered after its backward.

        Attention waits for both, so nothing hides them.
        """
        decoder, chunks = self.decoder, self.settings.context_parallel
        tokens = self._of_rank / self._passes * self.settings.sequence_tokens
        num_bytes = tokens * decoder.key_value_heads * decoder.head_width * DTYPE_BYTES[self.settings.dtype]
        gather_s = self.rates.collective_s("all_gather", num_bytes, chunks)
        scatter_s = self.rates.collective_s("reduce_scatter", num_bytes, chunks)
        num_gathers = 2 if self.settings.activation_checkpointing == "full" else 1
        return self._passes * 2 * decoder.layers * (num_gathers * gather_s + scatter_s)


def _visible_s(collective_s: float, computing_s: float) -> float:
    """Seconds by which a collective lengthens the computing that runs at the same time."""
    return max(_UNHIDDEN_FRACTION * collective_s, collective_s - computing_s)
