"""Bytes of activations that a forward pass keeps for backward: what autograd saves of each operator of a layer.

Of transformers' layers with flash attention, which the torch backend builds. With hidden size H, intermediate size I,
queries Q and keys K (heads times their width), numbers of n bytes, and all weights trained, a layer of llama keeps of
each token:

- of its two norms the input in float32 and normalised: 2 H (4 + n);
- the inputs of the projections of attention and MLP: 2 n H;
- queries, keys, values and output of attention, and float32 of each head's softmax: n (2 Q + 2 K) + 4 heads;
- gate, its activation, up, and their product: 4 n I.

Of frozen weights under adapters no input is kept that no adapter reads. With dropout each adapter reads an input of its
own: n bytes a number, and a byte for whether it was dropped. A compiled layer computes again in backward what is cheap:
norms keep their input alone, in n bytes, the MLP no activation.
"""

from __future__ import annotations

from pybench.core.norm_families import FLOAT32_NORMS, NORMS_OF_HEADS, NORMS_OF_OUTPUTS
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.lora_targets import projections
from pybench.model.workloads.settings import DTYPE_BYTES
from pybench.model.workloads.train import Train

_FLOAT32 = 4
# Tensors that backward of a norm has at once, of its input's size in float32, counted operator by operator.
_NORM_GRADIENTS = 5
_ONE_PROJECTION = frozenset(("phi3",))  # for queries, keys and values
# Those that train transformers' layers as they are, and hold all of a pass.
_STRATEGIES = frozenset(("ddp", "fsdp", "accelerate", "tensor_parallel"))
# What a layer that is recomputed keeps is that of its rank's tokens, whoever else attends to them.
_RECOMPUTING = _STRATEGIES | {"context_parallel"}
# Of what is compiled and selectively recomputed, a kept run confirms these.
_PLAIN = frozenset(("llama", "mistral", "qwen2"))


def kept_bytes(settings: Train, shape: DecoderShape) -> float:
    """Of one token on one rank: of all layers, and of the last norm. A least where not all is known.

    Unsloth keeps the inputs of recomputed layers in host memory, too.
    """
    number, is_full = DTYPE_BYTES[settings.computing_dtype], settings.activation_checkpointing == "full"
    if settings.activation_offload or (is_full and settings.strategy == "unsloth"):
        return 0.0
    if is_full or settings.strategy not in _STRATEGIES:
        return DTYPE_BYTES[settings.dtype] * shape.hidden * shape.layers / _along(settings)
    layer = _products(settings, shape, number) if _is_selective(settings) else _layer(settings, shape, number)
    head_input = 0 if settings.lora_rank else number
    last = shape.hidden * (_norm_number(settings, shape, number) + head_input) / _along(settings)
    return shape.layers * layer + last


def recomputed_bytes(settings: Train, shape: DecoderShape) -> float:
    """Of one token on one rank: the most that backward has of the layer that it computes again, one at a time."""
    if settings.activation_checkpointing != "full" or settings.strategy not in _RECOMPUTING:
        return 0.0
    number = DTYPE_BYTES[settings.computing_dtype]
    at_first = _layer(settings, shape, number) + _first_gradients(settings, shape, number)
    return at_first if settings.compile else max(at_first, _at_second_norm(settings, shape, number))


def _at_second_norm(settings: Train, shape: DecoderShape, number: int) -> float:
    """Of a layer in backward of the norm before its MLP: the most where ranks split layers but not norms.

    The MLP's backward is done. Left are what norms keep, but for this one's output, what attention reads and keeps, and
    the gradient of the layer's output.
    """
    output = _norm_number(settings, shape, number) - _FLOAT32
    passing = _FLOAT32 * _NORM_GRADIENTS - output + number
    attention = number * shape.hidden + _attention(settings, shape, number) / settings.tensor_parallel
    return _norms(settings, shape, number) + passing * shape.hidden / _along(settings) + attention


def _first_gradients(settings: Train, shape: DecoderShape, number: int) -> float:
    """Of a layer whose MLP has adapters: its output's, and its product's by the frozen weight and by the adapter.

    All of the layer is still there then. Of layers without such adapters no kept run shows theirs.
    """
    if not settings.lora_rank or not _trains_mlp(settings) or shape.num_experts > 1:
        return 0.0
    return number * (shape.hidden / _along(settings) + 2 * shape.intermediate / settings.tensor_parallel)


def kept_is_known(settings: Train, shape: DecoderShape) -> bool:
    """Whether :func:`kept_bytes` has all that is kept. Where layers are recomputed it is their inputs."""
    if settings.activation_offload:
        return False
    if settings.activation_checkpointing == "full":
        return True
    if settings.strategy not in _STRATEGIES or settings.mixed_precision:
        return False
    dropped_again = settings.lora_dropout and _is_selective(settings)
    if dropped_again or not _attends_in_one_kernel(settings, shape) or shape.num_experts > 1:
        return False
    if settings.tensor_parallel > 1 and (settings.lora_rank or settings.compile or _is_selective(settings)):
        return False
    plain = shape.model_type in _PLAIN and not settings.lora_rank
    compiled = settings.compile and (_is_selective(settings) or settings.weights == "nf4")
    return settings.context_parallel == 1 and (plain or not compiled)


def _attends_in_one_kernel(settings: Train, shape: DecoderShape) -> bool:
    """A window needs a mask, for which keys and values are repeated; no kernel takes groups of heads in float32."""
    windowed = shape.sliding_layers > 0 and (shape.window_tokens or 0) < settings.sequence_tokens
    return not windowed and (settings.dtype != "float32" or shape.heads == shape.key_value_heads)


def _layer(settings: Train, shape: DecoderShape, number: int) -> float:
    """Of experts the MLP is not known, and left out."""
    inner, outer = _attention(settings, shape, number), _inputs(settings, shape, number)
    if shape.num_experts == 1:
        products = (2 if settings.compile else 3) + (_trains_mlp(settings) and not settings.lora_dropout)
        inner += number * products * shape.intermediate
        outer += number * len(projections(settings.lora_targets)) * (settings.lora_rank or 0)
    return _norms(settings, shape, number) + outer + inner / settings.tensor_parallel


def _inputs(settings: Train, shape: DecoderShape, number: int) -> float:
    """What projections read behind a norm; with dropout all that adapters read."""
    mlp = _trains_mlp(settings) and shape.num_experts == 1
    if not settings.lora_dropout:
        return number * (2 if mlp else 1) * shape.hidden
    hidden, queries = shape.hidden, _queries(shape)
    read = {
        "query_value": 2 * hidden,
        "attention": 3 * hidden + queries,
        "all_linear": 3 * hidden + queries + (2 * hidden + shape.intermediate if mlp else 0),
    }
    return (number + 1) * read[settings.lora_targets or "query_value"]


def _norms(settings: Train, shape: DecoderShape, number: int) -> float:
    hidden = 2 * shape.hidden
    if shape.model_type in NORMS_OF_OUTPUTS:  # compiled, the MLP's norm is computed again from the one before
        hidden += (1 if settings.compile else 2) * shape.hidden
    heads = _queries(shape) + _keys(shape) if shape.model_type in NORMS_OF_HEADS else 0
    each = number if settings.compile else _norm_number(settings, shape, number)
    return each * (hidden / _along(settings) + heads / settings.tensor_parallel)


def _norm_number(settings: Train, shape: DecoderShape, number: int) -> int:
    """Bytes of a number that a norm has: as it is, and normalised where its weight is trained."""
    if settings.lora_rank:
        return _FLOAT32
    return _FLOAT32 + (_FLOAT32 if shape.model_type in FLOAT32_NORMS else number)


def _attention(settings: Train, shape: DecoderShape, number: int) -> float:
    queries, keys = _queries(shape), _keys(shape)
    numbers = 2 * queries + 2 * keys
    if shape.model_type in _ONE_PROJECTION:
        # Values keep the whole projection; attention's output, in the order of the queries, is copied.
        numbers += queries + keys + (0 if settings.compile else queries)
    return number * numbers + _FLOAT32 * shape.heads


def _products(settings: Train, shape: DecoderShape, number: int) -> float:
    """Of one layer that is recomputed but for its matrix products and attention: their results, and its input."""
    if shape.num_experts > 1:
        return number * shape.hidden / _along(settings)
    hidden, queries, keys = shape.hidden, _queries(shape), _keys(shape)
    results = {
        "query_value": queries + keys,
        "attention": queries + 2 * keys + hidden,
        "all_linear": queries + 2 * keys + 2 * hidden + 2 * shape.intermediate,
    }
    numbers = float(results["all_linear"] + queries)
    if settings.lora_rank:
        targets = settings.lora_targets or "query_value"
        numbers += results[targets] + len(projections(targets)) * settings.lora_rank
    within = number * numbers + _FLOAT32 * shape.heads
    return number * hidden / _along(settings) + within / settings.tensor_parallel


def _trains_mlp(settings: Train) -> bool:
    return not settings.lora_rank or settings.lora_targets == "all_linear"


def _is_selective(settings: Train) -> bool:
    return settings.activation_checkpointing == "selective"


def _along(settings: Train) -> int:
    """Ranks that norms are split over."""
    return settings.tensor_parallel if settings.sequence_parallel else 1


def _queries(shape: DecoderShape) -> int:
    return shape.heads * shape.head_width


def _keys(shape: DecoderShape) -> int:
    return shape.key_value_heads * shape.head_width
