"""Operations that training a token takes."""

from __future__ import annotations

from pybench.compute.flops import attention_flops_per_token, forward_flops_per_token, head_flops_per_token
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.train import Train


def model_flops_per_token(shape: DecoderShape, settings: Train) -> float:
    """Operations of one token that the model needs, by PaLM (arXiv:2204.02311, appendix B): 6 N + 12 L H Q T.

    Backward is twice forward. Under LoRA the frozen weights get no gradient of their own, so that their backward is
    once forward; the adapters, well under 1 %, are left out.
    """
    forward = forward_flops_per_token(shape, settings.sequence_tokens)
    if settings.lora_rank is None:
        return 3 * forward
    attention = attention_flops_per_token(shape, settings.sequence_tokens)
    return 2 * (forward - attention) + 3 * attention


def hardware_flops_per_token(shape: DecoderShape, settings: Train) -> float:
    """As :func:`model_flops_per_token`, and what is computed again.

    Full checkpointing runs every layer's forward twice, but not the head's. Selective checkpointing keeps matrix
    products and attention, all that is counted here.
    """
    needed = model_flops_per_token(shape, settings)
    if settings.activation_checkpointing != "full":
        return needed
    forward = forward_flops_per_token(shape, settings.sequence_tokens)
    return needed + forward - head_flops_per_token(shape)
