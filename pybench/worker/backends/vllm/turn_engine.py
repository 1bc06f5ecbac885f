"""vLLM as the engine of a turn, in this process or in processes of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from vllm.lora.request import LoRARequest

from pybench.model.workloads.train import lora_shape
from pybench.model.workloads.turn import Turn
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.backends.torch.train.model import trainable_model
from pybench.worker.backends.turn.delivery import Named, adapter_config
from pybench.worker.backends.vllm.arguments import prompt_of
from pybench.worker.backends.vllm.device_report import CACHE, WEIGHTS
from pybench.worker.backends.vllm.engines import BatchEngine, engine_errors, sampling
from pybench.worker.backends.vllm.turn_worker import ADAPTER_ID, Layout, cut


class VllmEngine:
    """One engine. ``shards`` are those of its GPUs that this process compares.

    Prefix caching is off, so that no cached prompt is the old weights'.
    """

    def __init__(self, settings: Turn, task: Task, engine: BatchEngine, shards: Sequence[int]) -> None:
        self._settings = settings
        self._engine = engine
        self._layouts = [Layout(task.architecture, shard, settings.tensor_parallel) for shard in shards]
        self._adapter = adapter_config(settings)
        self._adapter_folder = "none"
        self._asleep_tags: tuple[str, ...] = ()
        # Ranks that each drive a part of one engine must sample the same tokens, whatever their trainers draw.
        seeds = len(shards) < settings.tensor_parallel
        # Made once: making one takes a large part of a short phase. vLLM copies them.
        self._answering = [
            sampling(settings.output_tokens, seed=n if seeds else None) for n in range(settings.batch_size)
        ]
        self._first = [sampling(1, seed=0 if seeds else None)]
        self._scoring = [sampling(1, seed=0 if seeds else None, prompt_logprobs=0)]
        model, _ = trainable_model(task)
        names = [(name, list(weight.shape)) for name, weight in model.named_parameters()]
        given = (dict(task.architecture), settings.dtype, settings.seed, task.settings.weights == "nf4")
        self._ask("pybench_fill", *given, names, settings.tensor_parallel)

    def generate(self, prompts: torch.Tensor, halfway: Callable[[], None] | None) -> torch.Tensor:
        """All at once, sampled at temperature 1."""
        listed: list[list[int]] = prompts.tolist()
        outputs = self._run(listed, self._answering, halfway)
        answers = [list(output.outputs[0].token_ids) for output in outputs]
        return torch.cat([prompts, torch.tensor(answers, dtype=torch.long)], dim=1)

    def first_token(self, prompt: torch.Tensor) -> None:
        """One request for one token."""
        self._run([prompt.tolist()], self._first)

    def log_probabilities(self, tokens: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of a prompt's tokens, as the engine reports them."""
        [output] = self._run([tokens.tolist()], self._scoring)
        logprobs = [
            at[token].logprob for at, token in zip(output.prompt_logprobs[1:], tokens.tolist()[1:], strict=True)
        ]
        return torch.tensor(logprobs, dtype=torch.float32)

    def sleep(self, level: int) -> None:
        """The library's own sleep."""
        with engine_errors():
            self._engine.engine.sleep(level)
        self._asleep_tags = (WEIGHTS, CACHE) if level else ()

    def wake_weights(self) -> None:
        """The library's own wake of the tag; at level 0 nothing slept but the scheduler."""
        if self._asleep_tags:
            with engine_errors():
                self._engine.engine.wake_up([WEIGHTS])
            self._asleep_tags = (CACHE,)

    def wake_cache(self) -> None:
        """The remaining tag, named: a wake without tags would map the weights' memory again."""
        with engine_errors():
            self._engine.engine.wake_up([CACHE] if self._asleep_tags else ["scheduling"])
        self._asleep_tags = ()

    def poison(self) -> None:
        """Poison every worker."""
        self._ask("pybench_poison")

    def receive(self, tensors: Iterable[Named]) -> None:
        """Tensors as they are, in one call: vLLM looks through its model at each."""
        self._ask("pybench_receive", tensors, self._adapter)

    def read(self, file: Path) -> None:
        """An adapter by vLLM's own loader, weights by its model's."""
        if self._adapter is None:
            self._ask("pybench_read", str(file))
            return
        self._adapter_folder = str(file.parent)
        with engine_errors():
            self._engine.engine.add_lora(self._request(load_inplace=True))

    def prefetch(self, file: Path) -> None:
        """An adapter is read when it is taken: it is small."""
        if self._adapter is None:
            self._ask("pybench_prefetch", str(file))
        else:
            self._adapter_folder = str(file.parent)

    def apply(self) -> None:
        """Between two steps of the engine."""
        if self._adapter is None:
            self._ask("pybench_apply")
        else:
            self.read(Path(self._adapter_folder) / "adapter")

    @property
    def num_shards(self) -> int:
        """The number of the engine's GPUs, or 1 where each rank drives its own."""
        return len(self._layouts)

    def part(self, shard: int, name: str, whole: torch.Tensor) -> torch.Tensor:
        """Cut as vLLM cuts it; it scales the second half of adapters when it loads them."""
        layout = self._layouts[shard]
        own = cut(whole, layout.slice_of(name, tuple(whole.shape)))
        if ".lora_B." in name:
            shape = lora_shape(self._settings.training)
            return own * (shape.alpha / shape.rank)
        return own

    def digests(self) -> list[dict[str, int]]:
        """Digests of every worker of this engine."""
        found: list[dict[str, int]] = self._ask("pybench_digests")
        return found

    def host_bytes(self) -> int:
        """Pinned bytes of the engine's other processes."""
        if self._settings.num_processes == 1:
            return 0
        return sum(self._ask("pybench_pinned_bytes"))

    def close(self) -> None:
        """End the engine's processes."""
        self._engine.close()

    def _run(self, prompts: list[list[int]], params: list[Any], halfway: Callable[[], None] | None = None) -> list[Any]:
        request = self._request() if self._adapter is not None else None
        work = [(prompt_of(prompt), own) for prompt, own in zip(prompts, params, strict=True)]
        with engine_errors():
            return self._engine.run(work, request, halfway, after=self._settings.output_tokens // 2)

    def _request(self, *, load_inplace: bool = False) -> Any:
        return LoRARequest("adapter", ADAPTER_ID, self._adapter_folder, load_inplace=load_inplace)

    def _ask(self, method: str, *arguments: object) -> list[Any]:
        with engine_errors():
            return self._engine.ask_workers(method, *arguments)
