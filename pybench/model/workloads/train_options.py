"""Options that only some training strategies have, and the rules that each brings whatever the strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def is_given(value: object) -> bool:
    """Whether an option is set at all."""
    return value is not None


def is_on(value: object) -> bool:
    """Whether a switch is set to ``true``."""
    return value is True


@dataclass(frozen=True, kw_only=True)
class Need:
    """A value for which ``applies`` needs the setting ``other`` to be among ``wanted``; ``why`` is the message.

    ``None`` among ``wanted`` stands for a setting that is not given.
    """

    other: str
    wanted: tuple[object, ...]
    why: str
    applies: Callable[[object], bool] = is_given


@dataclass(frozen=True, kw_only=True)
class OptionTraits:
    """One option's rules.

    ``needs`` are what it needs beside it; ``at_least_given`` names a setting without which it means nothing, ``degree``
    one that must be above 1 at some point of the benchmark where the option ``is_on``. A ``gpu_only`` one loads a GPU's
    memory, link or limit: on a CPU it would show nothing, or never end. Values for which ``is_unpredicted`` are work
    that the model of step times leaves out, which it calls by ``work``.
    """

    needs: tuple[Need, ...] = ()
    at_least_given: str | None = None
    degree: str | None = None
    gpu_only: bool = False
    work: str = ""
    is_unpredicted: Callable[[object], bool] | None = None


def _equals(wanted: object) -> Callable[[object], bool]:
    return lambda value: value == wanted


def _differs_from(*usual: object) -> Callable[[object], bool]:
    return lambda value: value is not None and value not in usual


def _is_several(value: object) -> bool:
    return isinstance(value, int) and value > 1


def _one_stage(schedule: str) -> Need:
    why = f"{schedule} has one stage for each rank"
    return Need(other="stages_per_rank", wanted=(None, 1), why=why, applies=_equals(schedule))


DEFAULT_OUTPUT_TOKENS = 64
"""Of an answer that an evaluation decodes."""

_DECODED = Need(other="evaluation_method", wanted=("generation",), why="belongs to evaluation_method = 'generation'")

_ON_HOST = "update in host memory, whose rate no node check measures"

OPTION_TRAITS: dict[str, OptionTraits] = {
    "schedule": OptionTraits(needs=(_one_stage("gpipe"), _one_stage("1f1b"))),
    "stages_per_rank": OptionTraits(
        needs=(
            Need(
                other="schedule",
                wanted=("gpipe", "1f1b", "interleaved_1f1b"),
                why="more than one needs schedule = 'interleaved_1f1b'",
                applies=_is_several,
            ),
        ),
    ),
    "async_tensor_parallel": OptionTraits(
        needs=(
            Need(other="sequence_parallel", wanted=(True,), why="needs sequence_parallel = true", applies=is_on),
            Need(other="compile", wanted=(True,), why="needs compile = true", applies=is_on),
        ),
        gpu_only=True,
        work="async_tensor_parallel",
        is_unpredicted=is_on,
    ),
    "sequence_parallel": OptionTraits(degree="tensor_parallel"),
    "optimizer": OptionTraits(
        needs=(
            Need(
                other="fused_adamw",
                wanted=(None,),
                why="fused_adamw belongs to optimizer = 'adamw': remove it",
                applies=_differs_from("adamw"),
            ),
        ),
        work="optimizer other than adamw",
        is_unpredicted=_differs_from("adamw"),
    ),
    "max_grad_norm": OptionTraits(
        needs=(
            Need(
                other="cpu_offload",
                wanted=(None, False),
                why="can't join the norms of gradients in host memory over the GPUs' process group: remove cpu_offload",
            ),
        ),
    ),
    "comm_hook": OptionTraits(
        needs=(
            Need(
                other="dtype",
                wanted=("float32",),
                why="'bf16' saves nothing where gradients have 16 bits: set dtype = 'float32'",
                applies=_equals("bf16"),
            ),
        ),
        work="comm_hook",
        is_unpredicted=_differs_from("none"),
    ),
    "powersgd_rank": OptionTraits(
        needs=(Need(other="comm_hook", wanted=("powersgd",), why="belongs to comm_hook = 'powersgd'"),),
    ),
    "process_group": OptionTraits(work="process_group = 'gloo'", is_unpredicted=_equals("gloo")),
    "activation_offload": OptionTraits(gpu_only=True, work="activation_offload", is_unpredicted=is_on),
    "lora_dropout": OptionTraits(at_least_given="lora_rank"),
    "evaluation_every_steps": OptionTraits(
        needs=(
            Need(
                other="tensor_parallel",
                wanted=(None, 1),
                why="evaluates models whose layers are whole: remove tensor_parallel",
            ),
            Need(
                other="context_parallel",
                wanted=(None, 1),
                why="evaluates whole samples: remove context_parallel",
            ),
        ),
    ),
    "evaluation_method": OptionTraits(
        needs=(
            Need(
                other="loss_chunk_tokens",
                wanted=(None,),
                why="'generation' needs the logits that loss_chunk_tokens leaves out: remove one of the two",
                applies=_equals("generation"),
            ),
            Need(
                other="compile",
                wanted=(None, False),
                why="'generation' would compile the layers again for every length: remove compile",
                applies=_equals("generation"),
            ),
        ),
        at_least_given="evaluation_every_steps",
    ),
    "evaluation_batches": OptionTraits(at_least_given="evaluation_every_steps"),
    "evaluation_accumulation_steps": OptionTraits(at_least_given="evaluation_every_steps"),
    "evaluation_output_tokens": OptionTraits(needs=(_DECODED,)),
    "evaluation_beams": OptionTraits(needs=(_DECODED,)),
    "pin_memory": OptionTraits(at_least_given="loader_workers", gpu_only=True),
    "packing": OptionTraits(at_least_given="loader_workers"),
    "sample_tokens": OptionTraits(at_least_given="loader_workers"),
    "length_spread_fraction": OptionTraits(at_least_given="loader_workers"),
    "mixed_precision": OptionTraits(
        needs=(Need(other="dtype", wanted=("float32",), why="computes over float32 weights: set dtype = 'float32'"),),
        work="mixed_precision",
        is_unpredicted=is_given,
    ),
    "lora_alpha": OptionTraits(at_least_given="lora_rank"),
    "lora_targets": OptionTraits(at_least_given="lora_rank"),
    "weights": OptionTraits(at_least_given="lora_rank"),
    "double_quantization": OptionTraits(
        needs=(Need(other="weights", wanted=("nf4",), why="belongs to weights = 'nf4'"),),
    ),
    "cpu_offload": OptionTraits(gpu_only=True, work=f"{_ON_HOST} (cpu_offload)", is_unpredicted=is_on),
    "offload_optimizer": OptionTraits(gpu_only=True, work=f"{_ON_HOST} (offload_optimizer)", is_unpredicted=is_on),
    "offload_parameters": OptionTraits(
        needs=(
            Need(
                other="zero_stage",
                wanted=(3,),
                why="needs zero_stage = 3: only there weights are split",
                applies=is_on,
            ),
        ),
        gpu_only=True,
        work="offload_parameters",
        is_unpredicted=is_on,
    ),
    # Its hooks fetch weights module by module: at the node's rates a step's work takes a third of it on four H200s.
    "zero_stage": OptionTraits(work="zero_stage = 3", is_unpredicted=_equals(3)),
    "deepspeed_config": OptionTraits(work="deepspeed_config", is_unpredicted=is_given),
    "hybrid_shard": OptionTraits(
        needs=(
            Need(
                other="context_parallel",
                wanted=(None, 1),
                why="splits weights inside a host alone: remove context_parallel",
                applies=is_on,
            ),
        ),
        at_least_given="nodes",
        work="hybrid_shard",
        is_unpredicted=is_on,
    ),
    "reshard_after_forward": OptionTraits(work="reshard_after_forward = false", is_unpredicted=_equals(False)),
}
"""Options with rules; every other one may be set wherever its strategy has it."""
