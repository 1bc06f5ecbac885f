"""Turns of the torch backend: the engine in the trainer's process or in its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.tensor import DTensor, Shard

from pybench.model.workloads.turn import Turn
from pybench.worker.backends.common_torch.process_group import TorchRanks, describe
from pybench.worker.backends.torch.attention import sequence_masks
from pybench.worker.backends.torch.generate import Generation
from pybench.worker.backends.torch.tensor_parallel import replica_mesh, split_linears
from pybench.worker.backends.torch.train.learner import Task, local
from pybench.worker.backends.torch.train.model import rounded, trainable_model
from pybench.worker.backends.turn.delivery import Named, digest, read
from pybench.worker.backends.turn.party import Party
from pybench.worker.backends.turn.trainer import Parked, log_probabilities
from pybench.worker.backends.turn.turns import Turns


class TorchEngine:
    """The torch backend's generation over all ranks, with adapters where the trainer has them.

    Ranks split every layer, and each holds its own shard. Decoding runs without a CUDA graph: a graph would look for
    weights where they were before they left.
    """

    def __init__(self, settings: Turn, architecture: dict[str, Any], ranks: TorchRanks) -> None:
        self._settings = settings
        self._ranks = ranks
        self.num_shards = ranks.world_size
        # The model that the trainer has, with its weights as they are before any training.
        task = Task(replace(settings.training, weights=None), architecture, ranks)
        model, weights = trainable_model(task, rounded(packed=settings.training.weights == "nf4"))
        if ranks.world_size > 1:
            split_linears(model, replica_mesh(ranks.device, ranks.world_size))
        weights.fill()
        self._model = model.eval().requires_grad_(requires_grad=False)
        self._parameters = dict(self._model.named_parameters())
        self._parked = Parked(self._parameters.values())
        self._masks = sequence_masks(self._model.config, settings.longest_sequence_tokens, ranks.device)
        self._group = distributed.new_group(backend="gloo") if ranks.world_size > 1 else None
        self._arriving: Future[list[Named]] | None = None
        self._generation: Generation | None = None
        self._level = 1  # as if it woke
        self.wake_cache()

    def generate(self, prompts: torch.Tensor, halfway: Callable[[], None] | None) -> torch.Tensor:
        """Greedily, all sequences in lockstep."""
        assert self._generation is not None, "the engine sleeps"
        with torch.inference_mode():
            self._generation.prefill(prompts.to(self._ranks.device))
            for number in range(1, self._settings.output_tokens):
                if halfway is not None and number == self._settings.output_tokens // 2:
                    halfway()
                self._generation.decode()
        # Outside of inference mode: the trainer's backward is to see these tokens.
        return torch.cat([prompts, self._generation.output.cpu()], dim=1)

    def first_token(self, prompt: torch.Tensor) -> None:
        """A forward pass of the prompt."""
        self._logits(prompt).argmax(dim=-1).cpu()

    def log_probabilities(self, tokens: torch.Tensor) -> torch.Tensor:
        """Log-probabilities by a forward pass."""
        return log_probabilities(self._logits(tokens)[0, :-1], tokens[1:]).cpu()

    def sleep(self, level: int) -> None:
        """Let the cache go, and the weights."""
        self._level = level
        if level:
            self._generation = None
            self._parked.leave(keep=level == 1)
            if self._ranks.device.type == "cuda":
                torch.cuda.empty_cache()

    def wake_weights(self) -> None:
        """Weights as they were at level 1, memory alone at level 2."""
        if self._level:
            self._parked.come_back()

    def wake_cache(self) -> None:
        """A new cache, which takes its memory with the first prompts."""
        if self._level:
            self._generation = Generation(self._settings.generation, self._model, self._ranks.device)
        self._level = 0

    @torch.no_grad()
    def poison(self) -> None:
        """NaN in every element that this rank holds."""
        for parameter in self._parameters.values():
            local(parameter).fill_(torch.nan)

    @torch.no_grad()
    def receive(self, tensors: Iterable[Named]) -> None:
        """Copy this rank's part of each."""
        for name, whole in tensors:
            target = local(self._parameters[name])
            target.copy_(self.part(self._ranks.rank if self._group else 0, name, whole))

    def read(self, file: Path) -> None:
        """Every rank reads the whole file."""
        self.receive(read(file, self._ranks.device))

    def prefetch(self, file: Path) -> None:
        """Read in a thread."""
        self._arriving = ThreadPoolExecutor(max_workers=1).submit(lambda: list(read(file, self._ranks.device)))

    def apply(self) -> None:
        """Take what the thread read. Raises what kept it from reading."""
        assert self._arriving is not None
        self.receive(self._arriving.result())
        self._arriving = None

    def part(self, shard: int, name: str, whole: torch.Tensor) -> torch.Tensor:
        """The chunk of a split weight, or all of it."""
        parameter = self._parameters[name]
        if isinstance(parameter, DTensor) and isinstance(placement := parameter.placements[0], Shard):
            return whole.chunk(self.num_shards, dim=placement.dim)[shard]
        return whole

    def digests(self) -> list[dict[str, int]]:
        """All ranks give each other theirs."""
        digests = {name: digest(local(parameter)) for name, parameter in self._parameters.items()}
        if self._group is None:
            return [digests]
        gathered: list[dict[str, int]] = [{} for _ in range(self.num_shards)]
        distributed.all_gather_object(gathered, digests, group=self._group)
        return gathered

    def host_bytes(self) -> int:
        """Bytes of the weights' copies on a CPU; pinned copies count for the process."""
        return 0 if self._ranks.device.type == "cuda" else self._parked.host_bytes

    def close(self) -> None:
        """Do nothing: no process was started."""

    @torch.inference_mode()
    def _logits(self, tokens: torch.Tensor) -> torch.Tensor:
        masks = self._masks if len(tokens) == self._settings.longest_sequence_tokens else None
        logits: torch.Tensor = self._model(
            input_ids=tokens[None].to(self._ranks.device), attention_mask=masks, use_cache=False
        ).logits
        return logits


@contextmanager
def turns(settings: Turn, architecture: dict[str, Any], ranks: TorchRanks) -> Iterator[Turns]:
    """Start the engine, then the trainer where this rank trains."""
    uuid = describe(ranks.device, 0).uuid
    trains = settings.num_trainers > 1 or ranks.rank == 0
    party = Party(ranks, (uuid,) if uuid else (), trains=trains)
    training = ranks if settings.num_trainers > 1 else TorchRanks(0, 1, ranks.device)
    engine = TorchEngine(settings, architecture, ranks)
    with closing(Turns(settings, architecture, party, engine, training)) as work:
        yield work
