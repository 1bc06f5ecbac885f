"""What a training step is predicted from: how much work there is, and how ranks share it."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.explain.comm_model.layer_bytes import LayerBytes
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.stage_layers import even_layers
from pybench.model.workloads.train_strategies import Sharing

# DDP's own default.
BUCKET_BYTES = 25 * 2**20


@dataclass(frozen=True, kw_only=True)
class TrainingShape:
    """Samples of one data-parallel rank, tokens of each, bytes of an element; ``recompute``: layers do forward twice.

    A rank has one of ``context_parallel`` chunks of each sample.

    The samples go through in ``passes``; gradients are shared in the last one, and FSDP gathers weights in each. A
    bucket of DDP holds ``bucket_bytes``; each gradient has ``bucket_copies``: into its bucket, and back where it is no
    view of that. With ``loss_in_chunks`` the head and its loss do forward twice. ``fused_loss`` and ``fused_update``
    are one kernel each, of whole logits and of AdamW. ``adapters`` are the parameters of LoRA, which alone are trained;
    ``None``: all are. ``clip``: to a largest norm. A rank of a pipeline has ``stages_per_rank``, interleaved with those
    of the others. Each rank has so many ``layers_of_ranks``; ``None``: they are cut evenly, as by ``layer_split``.
    ``recompute_between``: what lies between products is computed again, as with ``recompute``, but no product is.
    ``norms`` are of all tokens on every tensor-parallel rank, or with ``split_tokens`` of its own; ``inner`` is what
    else a layer moves for each token, which these ranks split; ``None``: they are left out. ``adapter_products`` are
    bytes of the adapters' products for each token of a layer. Frozen weights that are stored in fewer bytes
    (``stored_bytes`` of all) move ``unpacked_bytes`` each time that a pass goes through all layers.
    """

    samples: float
    sequence_tokens: int
    element_bytes: int
    sharing: Sharing = "ddp"
    data_parallel: int = 1
    tensor_parallel: int = 1
    context_parallel: int = 1
    pipeline_parallel: int = 1
    microbatches: int = 1
    stages_per_rank: int = 1
    layers_of_ranks: tuple[int, ...] | None = None
    passes: int = 1
    bucket_bytes: int = BUCKET_BYTES
    bucket_copies: int = 2
    recompute: bool = False
    recompute_between: bool = False
    loss_in_chunks: bool = False
    fused_loss: bool = False
    fused_update: bool = True
    adapters: int | None = None
    adapter_products: LayerBytes | None = None
    stored_bytes: float | None = None
    unpacked_bytes: float = 0.0
    clip: bool = False
    norms: LayerBytes | None = None
    inner: LayerBytes | None = None
    split_tokens: bool = False

    @property
    def sharing_ranks(self) -> int:
        """Ranks that share gradients: those of every replica, and of every chunk of its sequences."""
        return self.data_parallel * self.context_parallel

    def layers_of(self, decoder: DecoderShape) -> tuple[int, ...]:
        """Layers of each rank of a pipeline."""
        return self.layers_of_ranks or even_layers(decoder.layers, self.pipeline_parallel)
