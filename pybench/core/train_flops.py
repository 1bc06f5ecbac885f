"""Operations that training a token takes."""

from __future__ import annotations

from pybench.model.decoder_flops import backward_flops_per_token, forward_flops_per_token, step_flops_per_token
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.train import Train


def model_flops_per_token(shape: DecoderShape, settings: Train) -> float:
    """Operations of one token that the model needs, by PaLM (arXiv:2204.02311, appendix B): 6 N + 12 L H Q T.

    Of LoRA less, as :func:`~pybench.model.decoder_flops.backward_flops_per_token` has it.
    """
    tokens = settings.sequence_tokens
    backward = backward_flops_per_token(shape, tokens, adapters=settings.lora_rank is not None)
    return forward_flops_per_token(shape, tokens) + backward


def hardware_flops_per_token(shape: DecoderShape, settings: Train) -> float:
    """As :func:`model_flops_per_token`, and what is computed again.

    Full checkpointing runs every layer's forward twice, a loss in chunks the head's. Selective checkpointing keeps
    matrix products and attention, all that is counted here.
    """
    # As many tokens as PaLM counts: each attends to the whole sequence.
    layer, head = step_flops_per_token(
        shape,
        settings.sequence_tokens,
        settings.sequence_tokens,
        recompute=settings.activation_checkpointing == "full",
        loss_in_chunks=settings.loss_chunk_tokens is not None,
        adapters=settings.lora_rank is not None,
    )
    return layer * shape.layers + head
