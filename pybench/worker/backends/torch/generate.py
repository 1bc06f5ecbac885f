"""Offline batch generation: prefill, then greedy decode over a cache of fixed size."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import linear
from transformers.cache_utils import Cache, StaticLayer

from pybench.model.backend import replica_of
from pybench.model.wire import Metric, Work, WorkOrder
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.worker.backend import Session, StepOutcome, Workload, generation_of
from pybench.worker.backends.common_torch.memory import memory_metrics
from pybench.worker.backends.common_torch.process_group import RoundClock, TorchRanks
from pybench.worker.backends.common_torch.samples import (
    IGNORED,
    Decoding,
    GenerationEvaluation,
    LossEvaluation,
    next_logits,
)
from pybench.worker.backends.torch.architecture import build_model
from pybench.worker.backends.torch.attention import decode_masks, sequence_masks
from pybench.worker.backends.torch.tensor_parallel import replica_mesh, without_sums
from pybench.worker.backends.torch.train.update import summed_loss


@contextmanager
def evaluation(settings: Evaluate, architecture: dict[str, Any], ranks: TorchRanks) -> Iterator[Workload]:
    """Build the model on every rank; on a GPU decoding runs from a CUDA graph."""
    model = build_model(architecture, getattr(torch, settings.dtype), ranks.device, settings.seed).eval()
    masks = sequence_masks(model.config, settings.longest_sequence_tokens, ranks.device)
    if settings.method == "loss":

        def mean_loss(tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            logits = model(input_ids=tokens, attention_mask=masks, use_cache=False).logits
            following = nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
            return summed_loss(logits, following) / (len(tokens) * settings.output_tokens)

        yield LossEvaluation(settings, architecture["vocab_size"], ranks, mean_loss)
        return
    generation = Generation(settings.decoding, model, ranks.device, ranks.rank)
    if ranks.device.type == "cuda":
        generation.capture()
    with closing(generation):
        yield GenerationEvaluation(settings, generation, model, {"attention_mask": masks})


# Eager rounds before capture: libraries allocate their workspaces in the first ones.
_ROUNDS_BEFORE_CAPTURE = 3
_CONTROL_ROUNDS = 32
"""Most decode rounds of a control step: 0.2 s of an 8B model."""
_CONTROL_STEPS = 2
_NOT_PRODUCED = -1


class Generation(Decoding):
    """A model, its cache and its token buffers; every tensor a decode round touches stays where it is.

    Replica ``replica`` takes its share of every step's sequences. With ``ranks``, decode rounds without communication
    follow the measured steps where tensor parallelism has any.
    """

    def __init__(
        self, settings: Generate, model: Any, device: torch.device, replica: int = 0, ranks: TorchRanks | None = None
    ) -> None:
        super().__init__(settings, model, device, replica)
        self._ranks = ranks
        self._config = model.config
        self._length = settings.prompt_tokens + settings.output_tokens
        # One kind of layer for all: the sliding one keeps its place in a Python int, which a CUDA graph would freeze.
        self._layers: list[Any] = [StaticLayer(self._length) for _ in range(self._config.num_hidden_layers)]
        self._cache = Cache(layers=self._layers)
        self._token = torch.zeros((self._batch_size, 1), dtype=torch.long, device=device)
        self._position = torch.zeros(1, dtype=torch.long, device=device)
        self._slot = torch.zeros(1, dtype=torch.long, device=device)
        shape = (self._batch_size, settings.output_tokens)
        self.output = torch.full(shape, _NOT_PRODUCED, dtype=torch.long, device=device)
        self._prompt_positions = torch.arange(settings.prompt_tokens, device=device)[None]
        if settings.prompt_tokens > 1:
            self._prompt_masks = sequence_masks(self._config, settings.prompt_tokens, device)
        else:  # one token is a decode round at position 0: it must not see the empty cache
            start = torch.zeros(1, dtype=torch.long, device=device)
            self._prompt_masks = decode_masks(self._config, start, self._length)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._round = self._decode_round
        self._second_context = False

    @torch.inference_mode()
    def step(self, index: int) -> StepOutcome:
        """Prefill the prompts of step ``index`` and decode all their tokens."""
        settings = self._settings
        clock = RoundClock(self._device)
        self.prefill(self.prompts(index))
        clock.mark()
        for _ in range(settings.output_tokens - 1):
            self.decode()
            clock.mark()
        ends_ns = clock.read()
        work = Work(
            prompt_tokens=self._batch_size * settings.prompt_tokens,
            output_tokens=int((self.output != _NOT_PRODUCED).sum()),
            samples=self._batch_size,
        )
        return StepOutcome(work=work, token_end_ns=ends_ns)

    def prefill(self, prompts: torch.Tensor) -> None:
        """Fill the cache from empty and produce each sequence's first token."""
        for layer in self._layers:
            layer.cumulative_length.zero_()
        self.output.fill_(_NOT_PRODUCED)
        self._slot.zero_()
        self._position.fill_(self._settings.prompt_tokens)
        self._take(next_logits(self._model, prompts, self._prompt_masks, self._prompt_positions, self._cache))

    def decode(self) -> None:
        """Produce the next token of each sequence."""
        if self._graph is None:
            self._round()
        else:
            self._graph.replay()

    @torch.inference_mode()
    def capture(self) -> None:
        """Record one decode round as a CUDA graph, so that launching its kernels does not bound it."""
        self.prefill(self.prompts(0))
        self._graph = self._recorded(self._decode_round)
        self._second_context = make_and_destroy_context(self._device)

    def _recorded(self, decode_round: Callable[[], None]) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(min(_ROUNDS_BEFORE_CAPTURE, self._settings.output_tokens - 1)):
                decode_round()
        torch.cuda.current_stream(self._device).wait_stream(side)
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        # thread_local: NCCL's watchdog thread makes CUDA calls of its own while we capture.
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            decode_round()
        return graph

    def close(self) -> None:
        """Drop the graph: it holds collectives and must go before the process group does."""
        if self._graph is not None:
            torch.cuda.synchronize(self._device)
            self._graph.reset()
            self._graph = None

    @torch.inference_mode()
    def metrics(self) -> tuple[Metric, ...]:
        """Peak memory, whether decode rounds ran from a CUDA graph, and whether a second context made it fast.

        Split layers add the share of decode rounds that communication takes, and how far the slowest rank is behind the
        others.
        """
        captured = Metric(name="cuda_graph", value=float(self._graph is not None), unit="")
        made = Metric(name="second_context", value=float(self._second_context), unit="")
        metrics = (*memory_metrics(self._device), captured, made)
        if self._ranks is None or self._settings.tensor_parallel == 1:
            return metrics
        from pybench.worker.backends.torch.train.training import control_metrics

        self.prefill(self.prompts(0))
        return (*metrics, *control_metrics(self._some_rounds, self._silence(), self._ranks, _CONTROL_STEPS))

    def _some_rounds(self) -> None:
        self._slot.zero_()
        self._position.fill_(self._settings.prompt_tokens)
        for layer in self._layers:
            layer.cumulative_length.fill_(self._settings.prompt_tokens)
        for _ in range(min(_CONTROL_ROUNDS, self._settings.output_tokens - 1)):
            self.decode()

    @contextmanager
    def _silence(self) -> Iterator[None]:
        """Decode rounds that exchange nothing: each rank takes its own sums, and tokens from its own columns."""
        model: Any = self._model
        graph, head = self._graph, model.get_output_embeddings()
        own_head = head.weight.to_local() if isinstance(head.weight, DTensor) else head.weight

        def silent_round() -> None:
            hidden = model.base_model(
                input_ids=self._token,
                attention_mask=decode_masks(self._config, self._position, self._length),
                position_ids=self._position[None],
                past_key_values=self._cache,
                use_cache=True,
            ).last_hidden_state
            self._take(linear(hidden[:, -1:], own_head)[:, -1])
            self._position.add_(1)

        with without_sums(self._model):
            self._graph, self._round = None, silent_round
            try:
                if graph is not None:
                    self._some_rounds()
                    self._graph = self._recorded(silent_round)
                yield
            finally:
                self.close()
                self._graph, self._round = graph, self._decode_round

    def _decode_round(self) -> None:
        masks = decode_masks(self._config, self._position, self._length)
        self._take(next_logits(self._model, self._token, masks, self._position[None], self._cache))
        self._position.add_(1)

    def _take(self, logits: torch.Tensor) -> None:
        self._token.copy_(logits.argmax(dim=-1, keepdim=True))
        self.output.index_copy_(1, self._slot, self._token)
        self._slot.add_(1)


def generations(settings: Generate, architecture: dict[str, Any], ranks: TorchRanks) -> Session:
    """Build the model, split over the ranks, for points that differ in batch and lengths."""
    size = settings.tensor_parallel
    mesh = replica_mesh(ranks.device, size, settings.data_parallel) if size > 1 else None
    model = build_model(architecture, getattr(torch, settings.dtype), ranks.device, settings.seed, mesh).eval()
    return partial(_generation, model=model, ranks=ranks)


@contextmanager
def _generation(order: WorkOrder, model: Any, ranks: TorchRanks) -> Iterator[Generation]:
    """Cache and buffers of one point, and on a GPU its decode round captured."""
    settings, _ = generation_of(order)
    work = Generation(settings, model, ranks.device, replica_of(order.settings, ranks.rank), ranks)
    if ranks.device.type == "cuda":
        work.capture()
    with closing(work):
        yield work


def make_and_destroy_context(device: torch.device) -> bool:
    """Make a second context on ``device``, a GPU by its number, and destroy it; the thread's own is current again.

    A CUDA graph of many small kernels has one of two speeds by the gaps between its kernels, and chance decides when it
    changes. A recorded graph has the faster one once another context on its GPU was made and destroyed: attempts then
    have one speed (docs/results/h100.md). The part of the driver that does so is unknown.

    Returns whether the driver did it. A GPU in exclusive-process mode refuses a second context, a full one has no room.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    handle, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuDeviceGet(ctypes.byref(handle), ctypes.c_int(device.index)):
        return False
    if driver.cuCtxCreate_v2(ctypes.byref(context), ctypes.c_uint(0), handle):
        return False
    return not driver.cuCtxDestroy_v2(context)
