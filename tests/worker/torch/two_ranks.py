"""One of two gloo ranks: saves logits and turns for test_torch_parallel.py to compare. Started by torchrun."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from pybench.model.workloads.generate import Generate
from pybench.model.workloads.turn import Turn
from pybench.worker.backend import WrongResultError
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.architecture import build_model
from pybench.worker.backends.torch.generate import Generation
from pybench.worker.backends.torch.tensor_parallel import replica_mesh
from pybench.worker.backends.torch.turns import TorchEngine, turns

CPU = torch.device("cpu")
shapes, tokens, orders = json.loads(sys.argv[1]), torch.tensor(json.loads(sys.argv[2])), json.loads(sys.argv[3])
out = Path(sys.argv[4])
distributed.init_process_group("gloo")
rank = distributed.get_rank()
shard = replica_mesh(CPU, 2)


def logits(shape: dict[str, Any], seed: int) -> torch.Tensor:
    """Logits of the split model; ranks that disagree on the seed hold halves of two different models."""
    model: Any = build_model(shape, torch.float32, CPU, seed, shard).eval()
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=tokens).logits
    return found


def taken(shape: dict[str, Any], given: dict[str, Any]) -> list[tuple[list[str], dict[str, float]]]:
    """Phases and values of two turns; a failed check raises."""
    sizes: dict[str, Any] = {"batch_size": 4, "prompt_tokens": 6, "output_tokens": 6, "tensor_parallel": 2}
    settings = Turn(backend="torch", model="tiny", dtype="float32", learning_rate=0.01, **sizes, **given)
    with turns(settings, shape, TorchRanks(rank, 2, CPU)) as work:
        steps = [work.step(number) for number in range(2)]
    return [([span.name for span in step.spans], dict(step.values)) for step in steps]


def fault_of(shape: dict[str, Any], given: dict[str, Any]) -> str:
    """The failed check when the second rank's engine does not take one weight."""
    receive = TorchEngine.receive
    if rank == 1:
        TorchEngine.receive = lambda self, tensors: receive(  # type: ignore[method-assign]
            self, (one for one in tensors if one[0] != "model.norm.weight")
        )
    try:
        taken(shape, given)
    except WrongResultError as error:
        return str(error)
    finally:
        TorchEngine.receive = receive  # type: ignore[method-assign]
    return ""


def controlled(shape: dict[str, Any]) -> tuple[dict[str, float], list[Any], list[Any]]:
    """The metrics after two steps, and the tokens of a step before and after rounds without communication."""
    settings = Generate(
        backend="torch",
        model="tiny",
        dtype="float32",
        batch_size=2,
        prompt_tokens=6,
        output_tokens=5,
        tensor_parallel=2,
    )
    model: Any = build_model(shape, torch.float32, CPU, 0, shard).eval()
    work = Generation(settings, model, CPU, 0, TorchRanks(rank, 2, CPU))
    work.step(0)
    before = work.output.tolist()
    metrics = {metric.name: metric.value for metric in work.metrics()}
    work.step(0)
    return metrics, before, work.output.tolist()


saved: dict[str, Any] = {
    "control": controlled(shapes["llama"]),
    "split": {name: logits(shape, 0) for name, shape in shapes.items()},
    "broken": {name: logits(shape, rank) for name, shape in shapes.items()},
    "turns": {name: taken(shapes["llama"], given) for name, given in orders.items()},
    "fault": fault_of(shapes["llama"], orders["full"]),
}
if rank == 0:
    torch.save(saved, out)
distributed.barrier()
os._exit(0)
