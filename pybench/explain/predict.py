"""The predicted phases of a point's step, and the work that the model refuses to predict."""

from __future__ import annotations

from pybench.core.flops import cached_numbers, read_weights
from pybench.explain.step_time import NodeRates, StepTime, UnmeasuredError, roofline
from pybench.explain.training import TrainingStep
from pybench.model.backend import BACKENDS
from pybench.model.decoder_shape import (
    DecoderShape,
    attention_flops_per_token,
    forward_flops_per_token,
    head_flops_per_token,
)
from pybench.model.suite import Point
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import AUTO, DTYPE_BYTES, PARALLEL_AXES, ModelSettings
from pybench.model.workloads.train import Train
from pybench.model.workloads.train_rules import STRATEGIES, UNPREDICTED


def predicted_phases(rates: NodeRates, point: Point, samples: float) -> tuple[StepTime, ...]:
    """The phases of ``point``'s step with ``samples`` in it.

    Generation has two phases, prefill and all decode rounds at the mean context; a replica runs its sequences in waves
    of ``max_num_seqs``. Training has one. Raises ``UnmeasuredError`` when the node's run lacks a rate, or the model
    does not know the point's work.
    """
    _refuse_unknown(point)
    settings, decoder = point.settings, point.shape
    assert decoder is not None, "a model without a shape was refused"
    assert isinstance(settings, (Generate, Train)), "other work was refused"
    if isinstance(settings, Train):
        return (TrainingStep(rates, decoder, settings, samples).time(),)
    share, at_once = _wave(settings, samples)
    prompt = settings.prompt_tokens
    prefill = _forward_pass(rates, decoder, settings, at_once, prompt, (0, prompt))
    rounds = _decode_round(rates, decoder, settings, at_once).times(settings.output_tokens - 1)
    return prefill.times(share / at_once), rounds.times(share / at_once)


def runs_in_waves(settings: ModelSettings) -> bool:
    """Whether an engine runs fewer sequences at a time than a replica has."""
    if not isinstance(settings, Generate) or settings.max_num_seqs is None:
        return False
    return settings.max_num_seqs * settings.data_parallel < settings.batch_size


def _refuse_unknown(point: Point) -> None:
    """Raise ``UnmeasuredError``, naming the setting, for work that the model would leave out silently."""
    settings = point.settings
    if not isinstance(settings, (Generate, Train)) or point.architecture is None:
        raise UnmeasuredError(f"the model knows no {settings.workload}")
    raised = [name for name in PARALLEL_AXES if int(getattr(settings, name)) > 1]
    if settings.num_nodes > 1 and len(raised) > 1:
        raise UnmeasuredError(f"over nodes the model knows one parallel degree ({', '.join(raised)} here)")
    # The node's rates were measured without those variables.
    unknown = {"variables of a benchmark's own (environment)": bool(settings.environment)}
    if isinstance(settings, Generate):
        split = settings.tensor_parallel * settings.pipeline_parallel > 1
        unknown |= {
            "context_parallel": settings.context_parallel > 1,
            "requests that come one by one (concurrency)": settings.concurrency is not None,
            "requests that come one by one (request_rate_per_s)": settings.request_rate_per_s is not None,
            "lengths that differ (length_spread_fraction)": settings.length_spread_fraction > 0,
            "prompts that are computed in part (prefix_caching)": bool(settings.prefix_caching),
            "quantization": settings.quantization is not None,
            "engine_args": bool(settings.engine_args),
            "split model that runs part of its sequences at a time (max_num_seqs)": split and runs_in_waves(settings),
        }
    else:
        strategy, has_experts = STRATEGIES[settings.strategy], point.shape is not None and point.shape.num_experts > 1
        found_passes = settings.finds_batch_size and settings.grad_accum == AUTO
        # Chunks over split weights: no run has measured them.
        chunks = settings.context_parallel > 1 and strategy.parallel_axes != ("context_parallel",)
        is_selective = settings.activation_checkpointing == "selective"
        passes = not strategy.exchanges_once and (found_passes or settings.num_passes > 1)
        unknown |= {
            f"strategy {settings.strategy}": strategy.sharing is None,
            f"context_parallel of {settings.strategy}": chunks,
            f"float32 weights of {settings.strategy}": strategy.sharing == "zero" and settings.dtype == "float32",
            **{
                work: (value := getattr(settings, name)) is not None and (values is None or value in values)
                for name, (work, values) in UNPREDICTED.items()
            },
            f"grad_accum of {settings.strategy}": passes,
            "selective activation_checkpointing of weights = 'nf4'": settings.weights == "nf4" and is_selective,
            "number of passes that was found by trying (batch_size_per_gpu, grad_accum)": found_passes,
            "compiled experts (compile)": has_experts and bool(settings.compile),
            "selective activation_checkpointing of experts": has_experts and is_selective,
        }
    if name := next((name for name, is_set in unknown.items() if is_set), None):
        raise UnmeasuredError(f"the model knows no {name}")


_REDUCTIONS_PER_LAYER = 2
# Time of the kernels of a decode round over their time at the node's rates. Fitted to kept rounds of vLLM and plain
# PyTorch on 2 and 4 H200s and H100s of five hosts.
_ROUND_OVER_RATE = 9 / 8
# Numbers that norms and residual sums read and write for each hidden number of a layer. Two fused kernels read and
# write hidden states and residual; plain PyTorch computes in float32, kernel by kernel (84 bytes, 42 16-bit numbers).
_FUSED_NORM_NUMBERS = 8
_PLAIN_NORM_NUMBERS = 42


def _wave(settings: Generate, samples: float) -> tuple[int, int]:
    """Sequences of one replica, and how many of them run at once."""
    share = max(1, round(samples / settings.data_parallel))
    return share, min(share, settings.max_num_seqs or share)


def _decode_round(rates: NodeRates, decoder: DecoderShape, settings: Generate, at_once: int) -> StepTime:
    """One more token of each of ``at_once`` sequences, at the mean context. Raises ``UnmeasuredError``."""
    contexts = (settings.prompt_tokens, settings.prompt_tokens + settings.output_tokens)
    return _forward_pass(rates, decoder, settings, at_once, 1, contexts, over_rate=_ROUND_OVER_RATE)


def _forward_pass(
    rates: NodeRates,
    decoder: DecoderShape,
    settings: Generate,
    at_once: int,
    tokens: int,
    contexts: tuple[float, float],
    over_rate: float = 1.0,
) -> StepTime:
    """One forward pass of ``tokens`` new tokens a sequence; only the last token's logits are computed.

    Products read weights, attention reads the cache. These kernels run one after another, so each has its own roofline:
    a round of many sequences is bound by computing in products and by memory in attention. Norms are bound by memory,
    and every tensor-parallel rank computes all of them.
    """
    element_bytes, degree = DTYPE_BYTES[settings.dtype], settings.tensor_parallel
    new = at_once * tokens
    attention_flops = new * attention_flops_per_token(decoder, *contexts)
    head_flops = head_flops_per_token(decoder)
    layer_flops = new * (forward_flops_per_token(decoder, *contexts) - head_flops) - attention_flops
    products = roofline(
        rates, (layer_flops + at_once * head_flops) / degree, read_weights(decoder, new) * element_bytes / degree
    )
    attention = roofline(
        rates, attention_flops / degree, at_once * cached_numbers(decoder, *contexts) * element_bytes / degree
    )
    norm_numbers = _FUSED_NORM_NUMBERS if BACKENDS[settings.backend].fuses_norms else _PLAIN_NORM_NUMBERS
    norm_bytes = new * decoder.hidden * decoder.layers * norm_numbers * element_bytes
    norms = StepTime(memory_s=norm_bytes / rates.memory_bytes_per_s)
    activations = new * decoder.hidden * element_bytes
    communication_s = (
        _REDUCTIONS_PER_LAYER * decoder.layers * rates.collective_s("all_reduce", activations, degree)
        + rates.collective_s("all_gather", at_once * decoder.vocabulary * element_bytes, degree)
        + (rates.send_s(activations) * (settings.pipeline_parallel - 1) if settings.pipeline_parallel > 1 else 0.0)
    )
    return (products + attention + norms).times(over_rate) + StepTime(communication_s=communication_s)


def refuse_launch_bound(rates: NodeRates, point: Point, samples: float, baseline_each: float) -> None:
    """Raise ``UnmeasuredError`` where launching a round's kernels takes longer than running them.

    More GPUs do not shorten such a round. Splitting a model adds work on the CPU that no microbenchmark measures. A
    replica is refused only if it has fewer samples than ``baseline_each``, those of a replica of the baseline.
    """
    settings = point.settings
    if not isinstance(settings, Generate):
        return
    is_split = settings.tensor_parallel * settings.pipeline_parallel > 1
    has_fewer = samples / settings.data_parallel < baseline_each
    if (is_split or has_fewer) and (bound := launch_bound(rates, point, samples)) is not None:
        raise UnmeasuredError(bound)


def launch_bound(rates: NodeRates, point: Point, samples: float) -> str | None:
    """A sentence where launching a round's kernels takes longer than running them, else ``None``.

    The counted launches are a lower bound. Raises ``UnmeasuredError``.
    """
    settings, decoder = point.settings, point.shape
    per_layer = BACKENDS[settings.backend].launches_per_layer
    if per_layer is None or rates.launch_s is None or decoder is None or not isinstance(settings, Generate):
        return None
    round_s = _decode_round(rates, decoder, settings, _wave(settings, samples)[1]).total_s
    num_launches = per_layer * decoder.layers
    launches_s = num_launches * rates.launch_s
    if launches_s <= round_s:
        return None
    return (
        f"decode is CPU bound: its {num_launches} launches or more take {launches_s * 1e3:.3g} ms a token "
        f"({rates.launch_s * 1e6:.3g} us each), the GPUs need {round_s * 1e3:.3g} ms"
    )
