"""A rank's real bytes of weights and gradients equal the plan's estimate."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from pybench.core.memory import held_back_bytes, held_parameters
from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.stage_layers import rank_weights, stage_layers
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.learner import Learner, Task, WholeModel, learner_of
from pybench.worker.backends.torch.train.strategies.pipeline_parallel import stage_module
from pybench.worker.backends.torch.train.training import trainer
from tests.worker.torch.first_rank import first_of
from tests.worker.torch.train_ranks import settings_of

# Embedding and head are 21 % of its weights.
ARCHITECTURE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 896,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 32,
    "vocab_size": 2048,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
SHAPE = DecoderShape.from_config(ARCHITECTURE)
EIGHT: dict[str, dict[str, Any]] = {
    "fsdp": {"strategy": "fsdp", "data_parallel": 8},
    "fsdp_context": {"strategy": "fsdp", "context_parallel": 8},
    "fsdp_both": {"strategy": "fsdp", "data_parallel": 2, "context_parallel": 4},
    "fsdp_tensor": {"strategy": "fsdp", "data_parallel": 4, "tensor_parallel": 2},
    "hybrid": {"strategy": "fsdp", "data_parallel": 8, "nodes": 2, "hybrid_shard": True},
    "tensor": {"strategy": "tensor_parallel", "tensor_parallel": 8},
    "sequence": {"strategy": "tensor_parallel", "tensor_parallel": 8, "sequence_parallel": True},
}


def task_of(options: dict[str, Any], num_ranks: int) -> Task:
    return Task(settings_of(options), ARCHITECTURE, TorchRanks(0, num_ranks, torch.device("cpu")))


@pytest.mark.parametrize("name", EIGHT)
def test_a_rank_of_eight_holds_what_the_plan_takes(name: str) -> None:
    """Norms, whole on each rank of split layers, are what is left out."""
    with first_of(8):
        task = task_of(EIGHT[name], 8)
        parameters = learner_of(task).parameters()
        held = sum(p.to_local().numel() if isinstance(p, DTensor) else p.numel() for p in parameters)
    assert held == pytest.approx(held_parameters(task.settings, SHAPE), rel=0.01)


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ({"pipeline_parallel": 2}, (3, 3)),
        ({"pipeline_parallel": 2, "activation_checkpointing": "full"}, (3, 3)),
        ({"pipeline_parallel": 4}, (1, 2, 2, 1)),
        ({"pipeline_parallel": 2, "schedule": "interleaved_1f1b", "stages_per_rank": 2}, (2, 2, 1, 1)),
        ({"pipeline_parallel": 4, "strategy": "layer_split"}, (1, 2, 1, 2)),
    ],
)
def test_a_stage_holds_what_the_plan_takes(options: dict[str, Any], layers: tuple[int, ...]) -> None:
    """Six layers, with a head of nearly one's weights."""
    architecture = {**ARCHITECTURE, "num_hidden_layers": 6, "vocab_size": 3072}
    settings = settings_of({"strategy": "pipeline_parallel", **options})
    task = Task(settings, architecture, TorchRanks(0, settings.pipeline_parallel, torch.device("cpu")))
    shape = DecoderShape.from_config(architecture)
    assert stage_layers(settings, shape) == layers
    stages = [stage_module(task, index, len(layers)) for index in range(len(layers))]
    held = [sum(parameter.numel() for parameter in stage.parameters()) for stage in stages]
    assert held == pytest.approx(rank_weights(shape, layers), rel=0.01)


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module:UserWarning")
@pytest.mark.parametrize("options", [EIGHT["fsdp"], EIGHT["fsdp_both"], EIGHT["fsdp_tensor"]])
def test_fsdp_holds_whole_gradients_between_a_steps_passes(options: dict[str, Any]) -> None:
    """It splits them in the last one alone."""
    with first_of(8):
        task = task_of({**options, "global_batch_size": 16, "grad_accum": 2}, 8)
        with trainer(task) as work:
            first, _ = work.source.passes()
            work.learner.backward(first, 1.0, last=False)
            held = sum(_unsharded_gradient_bytes(module) for module in _model(work.learner).modules())
    assert held == pytest.approx(held_back_bytes(task.settings, SHAPE), rel=0.01)
    assert held_back_bytes(settings_of(options), SHAPE) == 0


def _model(learner: Learner) -> Any:
    assert isinstance(learner, WholeModel)
    return learner.model


def _unsharded_gradient_bytes(module: torch.nn.Module) -> int:
    """The weights of one FSDP group, by a private attribute: torch has no public one."""
    if not isinstance(module, FSDPModule):
        return 0
    group = module._get_fsdp_state()._fsdp_param_group
    found = [] if group is None else [p._unsharded_param.grad for p in group.fsdp_params]
    local = [g.to_local() if isinstance(g, DTensor) else g for g in found if g is not None]
    return sum(gradient.nbytes for gradient in local)


@pytest.mark.parametrize("strategy", ["ddp", "context_parallel"])
def test_gradients_are_exchanged_once_a_step(strategy: str) -> None:
    """In the last of four passes, all of them."""
    axis = "data_parallel" if strategy == "ddp" else strategy
    reduced: list[int] = []

    with first_of(2):
        task = task_of({"strategy": strategy, axis: 2, "grad_accum": 4}, 2)
        with trainer(task) as work:
            _model(work.learner).register_comm_hook(None, lambda _state, bucket: _counted(bucket, reduced))
            work.step(0)
            number = sum(parameter.numel() for parameter in work.learner.parameters())
    assert sum(reduced) == number


def _counted(bucket: Any, reduced: list[int]) -> torch.futures.Future[torch.Tensor]:
    """As if the bucket had been reduced."""
    reduced.append(bucket.buffer().numel())
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
