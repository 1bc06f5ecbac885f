"""The transformers backend: the library's own forward passes, on one GPU, layer by layer on several, or split."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from transformers import AutoConfig, BitsAndBytesConfig, GenerationConfig, StoppingCriteria
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from pybench.model.backend import BACKENDS, replica_of
from pybench.model.wire import Metric, Work, WorkOrder
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.worker.backend import Session, StepOutcome, UnsupportedError, Workload, generation_of
from pybench.worker.backends.common_torch.memory import memory_metrics, with_own_memory
from pybench.worker.backends.common_torch.process_group import RoundClock, TorchRanks, describe, joined
from pybench.worker.backends.common_torch.samples import Decoding, GenerationEvaluation, LossEvaluation
from pybench.worker.exchange import Device
from pybench.worker.gpus import VISIBLE_DEVICES
from pybench.worker.ranks import rank_numbers
from pybench.worker.seeds import WEIGHT_STD, weight_seed

# Numbers drawn, then repeated: drawing one for every weight of a large model would take minutes on a CPU.
_NUM_DRAWN = 2**20


def state_dict(kind: Any, config: Any, dtype: torch.dtype, seed: int) -> dict[str, torch.Tensor]:
    """Every weight of model class ``kind``, on the CPU: the same on every rank. Tied ones are there once.

    Norms are 1, biases 0, all others parts of one tensor of normal numbers, from a place that the weight's name
    decides. Such parts cost no memory: tensors of their own take 8 s for 8 billion weights.
    """
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in kind(config).named_parameters()}
    norm = 0.0 if config.model_type.startswith("gemma") else 1.0  # Gemma's norms multiply by 1 + weight
    drawn = torch.empty(_NUM_DRAWN, dtype=dtype)
    drawn.normal_(0.0, WEIGHT_STD, generator=torch.Generator().manual_seed(weight_seed(seed, "weights")))
    numbers = drawn.repeat(2 + max(shape.numel() for shape in shapes.values()) // _NUM_DRAWN)

    def weight(name: str, shape: torch.Size) -> torch.Tensor:
        if name.endswith(("norm.weight", "bias")):
            return torch.full(shape, 0.0 if name.endswith("bias") else norm, dtype=dtype)
        start = weight_seed(seed, name) % _NUM_DRAWN
        return numbers[start : start + shape.numel()].view(shape)

    return {name: weight(name, shape) for name, shape in shapes.items()}


FAMILIES = BACKENDS["transformers"].model_types
_LAYER = re.compile(r".*\blayers\.\d+\.")


def build_model(architecture: dict[str, Any], settings: Generate, device: torch.device) -> Any:
    """Model with random weights, loaded by the library.

    ``tensor_parallel`` above 1 splits every layer by ``tp_plan="auto"``, ``pipeline_parallel`` spreads the layers by
    ``device_map``; else all of it is on ``device``. Raises :class:`UnsupportedError` for an unknown family.
    """
    family = architecture.get("model_type")
    if family not in FAMILIES:
        raise UnsupportedError(f"model_type {family!r}: the transformers backend knows {', '.join(FAMILIES)}")
    config = AutoConfig.for_model(family, **{key: v for key, v in architecture.items() if key != "model_type"})
    # Sequences end by their length: looking for an end token is work on the whole vocabulary in each round.
    config.eos_token_id = None
    kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    dtype = getattr(torch, settings.dtype)
    weights = state_dict(kind, config, dtype, settings.seed)
    options = _placement(settings, device)
    if settings.quantization is not None:  # NF4 for all linear layers but the head
        configure: Any = BitsAndBytesConfig  # untyped
        four_bits = configure(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
        options["quantization_config"] = four_bits
    if getattr(config, "attn_logit_softcapping", None):  # Gemma 2: the library's call of torch's kernel lacks the cap
        options["attn_implementation"] = "eager"
    model = kind.from_pretrained(None, config=config, state_dict=weights, dtype=dtype, **options)
    return model.eval()


def layers_by_gpu(model: Any, num_gpus: int) -> dict[int, int]:
    """Number of layers on each of the model's GPUs, by the GPU's number in this process.

    Read from the weights: the library keeps its map only of a model that it spread over several devices. A layer that
    it left in host memory is on none.
    """
    places: dict[str, torch.device] = {}
    for name, weight in model.named_parameters():
        if layer := _LAYER.match(name):
            places.setdefault(layer[0], weight.device)
    on_gpus = [place.index for place in places.values() if place.type == "cuda"]
    return {gpu: on_gpus.count(gpu) for gpu in range(num_gpus)}


def _placement(settings: Generate, device: torch.device) -> dict[str, Any]:
    """Where the layers go; the plan of tensor parallelism by its name in this version."""
    if settings.tensor_parallel == 1:
        return {"device_map": {"": device} if settings.pipeline_parallel == 1 else settings.device_map}
    try:
        from transformers.distributed.configuration_utils import DistributedConfig

        return {"distributed_config": DistributedConfig(tp_plan="auto")}
    except (ImportError, TypeError):
        return {"tp_plan": "auto"}


class _Rounds(StoppingCriteria):  # type: ignore[misc] # its type is not read
    """Called after each round to decide whether to stop; never stops, and marks the round."""

    def __init__(self, clock: RoundClock, batch_size: int, device: torch.device) -> None:
        self._clock = clock
        self._none_done = torch.zeros(batch_size, dtype=torch.bool, device=device)

    def __call__(self, input_ids: torch.Tensor, _scores: Any, **_more: Any) -> torch.Tensor:
        self._clock.mark()
        if len(self._none_done) != len(input_ids):  # a search by beams looks at more sequences than it keeps
            self._none_done = self._none_done.new_zeros(len(input_ids))
        return self._none_done


class TransformersGeneration(Decoding):
    """Generation by the library's ``generate``."""

    def __init__(self, settings: Generate, model: Any, device: torch.device, replica: int, beams: int = 1) -> None:
        super().__init__(settings, model, device, replica)
        self.output = torch.zeros((self._batch_size, 0), dtype=torch.long)
        configure: Any = GenerationConfig  # untyped
        self._config = configure(
            max_new_tokens=settings.output_tokens,
            do_sample=False,
            num_beams=beams,
            use_cache=True,
            pad_token_id=0,
            eos_token_id=None,
        )

    @torch.inference_mode()
    def step(self, index: int) -> StepOutcome:
        """Generate for the prompts of step ``index``."""
        prompts = self.prompts(index)
        clock = RoundClock(self._device)
        sequences = self._model.generate(
            input_ids=prompts,
            attention_mask=torch.ones_like(prompts),
            generation_config=self._config,
            stopping_criteria=[_Rounds(clock, len(prompts), self._device)],
        )
        self.output = sequences[:, prompts.shape[1] :]
        work = Work(prompt_tokens=prompts.numel(), output_tokens=self.output.numel(), samples=self._batch_size)
        return StepOutcome(work=work, token_end_ns=clock.read())

    def metrics(self) -> tuple[Metric, ...]:
        """Peak memory, of the fullest of this process's devices, and the layers on each that they are spread over."""
        every = [memory_metrics(device) for device in visible_devices(self._device)]
        fullest = max(every, key=lambda metrics: metrics[0].value if metrics else 0.0)
        stages = self._settings.pipeline_parallel
        layers = layers_by_gpu(self._model, stages) if stages > 1 else {}
        placed = (Metric(name=f"gpu_{gpu}_layers", value=float(count), unit="") for gpu, count in layers.items())
        return (*fullest, *placed)


def visible_devices(device: torch.device) -> tuple[torch.device, ...]:
    """All GPUs that this process sees, over which a model may be spread; on a CPU that one ``device``."""
    if device.type == "cpu":
        return (device,)
    return tuple(torch.device("cuda", index) for index in range(torch.cuda.device_count()))


def _workload(order: WorkOrder, model: Any, ranks: TorchRanks) -> AbstractContextManager[Workload]:
    settings = order.settings
    if not isinstance(settings, Evaluate):
        settings, _ = generation_of(order)
        return nullcontext(TransformersGeneration(settings, model, ranks.device, replica_of(settings, ranks.rank)))
    if settings.method == "loss":
        loss_of: Any = lambda tokens, labels: model(input_ids=tokens, labels=labels, use_cache=False).loss  # noqa: E731
        return nullcontext(LossEvaluation(settings, model.config.vocab_size, ranks, loss_of))
    generation = TransformersGeneration(settings.decoding, model, ranks.device, ranks.rank, settings.beams)
    return nullcontext(GenerationEvaluation(settings, generation, model))


@contextmanager
def join(order: WorkOrder) -> Iterator[tuple[TorchRanks, Device]]:
    """Take this rank's GPU, or its group of GPUs where layers are spread, and meet the other ranks."""
    stages = getattr(order.settings, "pipeline_parallel", 1)
    if order.device == "cpu" or stages == 1:
        with joined(order) as joining:
            yield joining
        return
    # Only this process's group stays visible, before CUDA starts: ``device_map`` takes all that it sees.
    rank, visible = rank_numbers().local_rank, os.environ.get(VISIBLE_DEVICES, "").split(",")
    os.environ[VISIBLE_DEVICES] = ",".join(visible[rank * stages : (rank + 1) * stages])
    with joined(order, local_rank=0) as (ranks, first):
        every = (describe(torch.device("cuda", index), 0).uuid for index in range(stages))
        yield ranks, replace(first, uuids=tuple(uuid for uuid in every if uuid is not None))


@contextmanager
def prepare(order: WorkOrder, ranks: TorchRanks) -> Iterator[Session]:
    """Load the model over this rank's devices, or this rank's part of every layer, for points of any size."""
    if isinstance(order.settings, Evaluate) and order.architecture is not None:
        settings, architecture = order.settings.decoding, order.architecture
    else:
        settings, architecture = generation_of(order)
    model = build_model(architecture, settings, ranks.device)
    yield with_own_memory(partial(_workload, model=model, ranks=ranks), visible_devices(ranks.device))
