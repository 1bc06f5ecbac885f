"""Extensions of vLLM's worker processes: only these know their GPU, its memory and the engine's weights."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pybench.worker.backends.turn.delivery import Named, digest, peft_name, read
from pybench.worker.backends.turn.party import pinned_bytes
from pybench.worker.gpus import nvml_uuid
from pybench.worker.seeds import weight_seed

_EMBEDDING = (".embedding.weight", ".embed_tokens.weight")


class DeviceReport:
    """Base class of our extensions of vLLM's worker class."""

    device: Any
    model_runner: Any
    vllm_config: Any

    def pybench_forget_peak(self) -> None:
        """Begin a point: peaks are those from now on."""
        torch.cuda.reset_peak_memory_stats(self.device)

    def pybench_device_report(self) -> list[str | int]:
        """UUID, peak bytes allocated, peak bytes reserved, tokens of key-value cache (0: unknown)."""
        from vllm.v1.core.kv_cache_utils import get_max_concurrency_for_kv_cache_config

        from pybench.worker.backends.common_torch.memory import allocator_peak_bytes

        cache, cache_tokens = getattr(self.model_runner, "kv_cache_config", None), 0
        if cache is not None and cache.kv_cache_groups:
            # Whole sequences' tokens, as vLLM itself reports them at start. Layers with other attention use blocks of
            # the same pool, so blocks times their size is too much.
            sequences: float = get_max_concurrency_for_kv_cache_config(self.vllm_config, cache)
            cache_tokens = int(sequences * self.vllm_config.model_config.max_model_len)
        uuid = nvml_uuid(torch.cuda.get_device_properties(self.device).uuid)
        return [uuid, *allocator_peak_bytes(self.device), cache_tokens]


class GenerationWorker(DeviceReport):
    """Mixed into vLLM's worker class by its argument ``worker_extension_cls``."""

    @torch.no_grad()
    def pybench_spread_experts(self, seed: int) -> int:
        """Have a mixture's tokens spread over its experts; returns the number of routers that this worker has.

        Embeddings become large compared with the layers' outputs, so that tokens differ. Routers' rows become random
        and equally long: the expert with the longest row would be chosen most. A router is the same on every GPU.
        """
        num_routers = 0
        for name, weight in self.model_runner.model.named_parameters():
            if name.endswith(_EMBEDDING):
                generator = torch.Generator(weight.device).manual_seed(weight_seed(seed, name))
                weight.normal_(0.0, 1.0, generator=generator)
            elif name.endswith(".router.bias"):
                weight.zero_()
            elif name.endswith(".router.weight"):
                generator = torch.Generator().manual_seed(weight_seed(seed, name))
                rows = torch.randn(weight.shape, generator=generator)
                weight.copy_(rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True))
                num_routers += 1
        return num_routers


WEIGHTS, CACHE = "weights", "kv_cache"

_COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_ROWS = ("o_proj", "down_proj")
_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_VOCABULARY = ("embed_tokens", "lm_head")
# vllm/model_executor/layers/vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE
_VOCABULARY_PADDING = 64


@dataclass(frozen=True)
class Slice:
    """``whole.narrow(dim, start, length)`` lies at ``offset`` along ``dim`` of ``parameter``.

    ``half`` is "a" or "b" for an adapter's halves, which vLLM stacks at ``place`` in the fused layer ``parameter``.
    """

    parameter: str
    dim: int
    start: int
    length: int
    offset: int
    half: str = ""
    place: int = 0


@dataclass(frozen=True)
class Layout:
    """One of ``num_shards`` tensor-parallel shards of a llama, qwen2 or qwen3 model."""

    architecture: dict[str, Any]
    shard: int
    num_shards: int

    def slice_of(self, name: str, shape: tuple[int, ...]) -> Slice:
        """Place of the weight ``name``, by its name in transformers, with peft's additions where it has adapters."""
        parts = [part for part in name.split(".") if part not in {"base_layer", "default"}]
        half = {"lora_A": "a", "lora_B": "b"}.get(parts[-2], "")
        layer = parts[-3] if half else parts[-2]
        places = ((fused, layers.index(layer)) for fused, layers in _FUSED.items() if layer in layers)
        fused, place = next(places, (layer, 0))
        owner = parts[: -3 if half else -2]
        parameter = ".".join([*owner, fused] if half else [*owner, fused, parts[-1]])
        dim, splits = 0, layer in _VOCABULARY
        if layer in _COLUMNS:
            splits = half != "a"
        elif layer in _ROWS:
            dim, splits = (0, False) if half == "b" or parts[-1] == "bias" else (1, True)
        start, length = self._range(layer, shape[dim], splits=splits)
        offset = 0 if half else self._rows_before(layer)
        return Slice(parameter, dim, start, length, offset, half, place)

    def _range(self, layer: str, size: int, *, splits: bool) -> tuple[int, int]:
        if not splits:
            return 0, size
        if layer in _VOCABULARY:
            padded = -(-size // _VOCABULARY_PADDING) * _VOCABULARY_PADDING
            share = padded // self.num_shards
            start = min(self.shard * share, size)
            return start, min(share, size - start)
        share = size // self.num_shards
        return self.shard * share, share

    def _rows_before(self, layer: str) -> int:
        """Rows of this shard that the layers fused in front of it take."""
        arch = self.architecture
        width = arch.get("head_dim") or arch["hidden_size"] // arch["num_attention_heads"]
        queries = arch["num_attention_heads"] * width // self.num_shards
        keys = arch.get("num_key_value_heads", arch["num_attention_heads"]) * width // self.num_shards
        before = {"k_proj": queries, "v_proj": queries + keys, "up_proj": arch["intermediate_size"] // self.num_shards}
        return int(before.get(layer, 0))


def cut(whole: torch.Tensor, place: Slice) -> torch.Tensor:
    """The part of a whole weight that the shard holds."""
    return whole.narrow(place.dim, place.start, place.length)


ADAPTER_ID = 1


class TurnWorker(DeviceReport):
    """Mixed into vLLM's worker class by its argument ``worker_extension_cls``."""

    rank: int

    def pybench_fill(
        self, architecture: dict[str, Any], dtype: str, seed: int, packed: bool, names: list[Any], shards: int
    ) -> None:
        """Give the base model the weights that the trainer's has. ``names`` are all weights with their shapes.

        ``packed`` is whether the trainer's frozen weights have four bits.
        """
        from pybench.worker.backends.torch.architecture import Weights, empty_model
        from pybench.worker.backends.torch.train.model import rounded

        self._layout = Layout(architecture, self.rank % shards, shards)
        self._names = {name: tuple(shape) for name, shape in names}
        self._arriving: Future[list[Named]] | None = None
        # By the names that they have without adapters.
        every = self.model_runner.model.named_parameters()
        self._parameters = {name.replace(".base_layer", ""): parameter for name, parameter in every}
        self._modules = dict(self.model_runner.model.named_modules())
        model = empty_model(architecture, getattr(torch, dtype))
        with torch.no_grad():
            for name, whole in Weights(model, self.device, seed, changed=rounded(packed=packed)).named():
                place = self._layout.slice_of(name, tuple(whole.shape))
                self._held(place).copy_(cut(whole, place))
        torch.cuda.synchronize(self.device)

    def pybench_receive(self, given: Any, adapter: dict[str, Any] | None) -> None:
        """Tensors of this process, as they are; of a model, vLLM keeps this shard's part of each."""
        if adapter is not None:
            self._take_adapter(list(given), adapter)
        else:
            with torch.no_grad():
                self.model_runner.model.load_weights(given)
        torch.cuda.synchronize(self.device)

    def pybench_read(self, file: str) -> None:
        """The whole file, weight by weight."""
        self.pybench_receive(read(Path(file), self.device), None)

    def pybench_prefetch(self, file: str) -> None:
        """Read the file to pinned host memory, in a thread."""

        def pinned() -> list[Named]:
            torch.cuda.set_device(self.device)  # a thread of its own begins on the first GPU
            return [(name, tensor.pin_memory()) for name, tensor in read(Path(file), torch.device("cpu"))]

        self._arriving = ThreadPoolExecutor(max_workers=1).submit(pinned)

    def pybench_apply(self) -> None:
        """Take what the thread read. Raises what kept it from reading."""
        assert self._arriving is not None
        arriving = self._arriving.result()
        self.pybench_receive(((name, tensor.to(self.device, non_blocking=True)) for name, tensor in arriving), None)
        self._arriving = None

    def pybench_poison(self) -> None:
        """NaN in every weight."""
        with torch.no_grad():
            for parameter in self.model_runner.model.parameters():
                parameter.fill_(torch.nan)
        torch.cuda.synchronize(self.device)

    def pybench_digests(self) -> dict[str, int]:
        """Digests of this shard's part of every weight."""
        digests = {}
        for name, shape in self._names.items():
            place = self._layout.slice_of(name, shape)
            if not place.half or self._slot() is not None:
                digests[name] = digest(self._held(place, shape))
        return digests

    def pybench_pinned_bytes(self) -> int:
        """Pinned bytes of this worker's process."""
        return pinned_bytes()

    def _take_adapter(self, tensors: list[Named], config: dict[str, Any]) -> None:
        """Load adapters from memory, in the way of vLLM's loader of files."""
        from vllm.lora.lora_model import LoRAModel
        from vllm.lora.peft_helper import PEFTHelper

        manager = self.model_runner.lora_manager._adapter_manager  # noqa: SLF001 - vLLM loads adapters from files only
        adapter = LoRAModel.from_lora_tensors(
            ADAPTER_ID,
            # Its own copies: it keeps them, and scales them in place.
            {peft_name(name): tensor.clone() for name, tensor in tensors},
            PEFTHelper.from_dict(config),
            device=str(self.device),
            dtype=manager.lora_config.lora_dtype,
        )
        manager.remove_adapter(ADAPTER_ID)
        manager.add_adapter(adapter)
        manager.activate_adapter(ADAPTER_ID)

    def _slot(self) -> int | None:
        """The adapter's index in the stacks; ``None`` without one."""
        slots = self.model_runner.lora_manager._adapter_manager.lora_index_to_id  # noqa: SLF001 - nowhere public
        return slots.index(ADAPTER_ID) if ADAPTER_ID in slots else None

    def _held(self, place: Slice, shape: tuple[int, ...] = ()) -> torch.Tensor:
        """The part of vLLM's own tensor that holds a weight's slice."""
        if place.half:
            layer = self._modules[place.parameter]
            stack = getattr(layer, f"lora_{place.half}_stacked")[place.place][self._slot(), 0]
            sizes = [place.length if dim == place.dim else size for dim, size in enumerate(shape)]
            held: torch.Tensor = stack[: sizes[0], : sizes[1]]
            return held
        parameter: torch.Tensor = self._parameters[place.parameter]
        return parameter.narrow(place.dim, place.offset, place.length)
