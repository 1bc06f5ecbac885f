"""Turns on a CPU, by the worker's own path: every handover, and faults that the checks must catch."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from peft import LoraConfig, get_peft_model
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from pybench.model.wire import Event, Metric, Step, WorkOrder
from pybench.model.workloads.turn import Turn
from pybench.run.events.contract import ordered_phases
from pybench.worker.backend import WrongResultError, cause_of
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch import entry
from pybench.worker.backends.torch.turns import TorchEngine
from pybench.worker.backends.turn import delivery
from pybench.worker.backends.turn.trainer import Trainer
from pybench.worker.imports import import_before_engine
from pybench.worker.main import run_session

BASE: dict[str, Any] = {
    "backend": "torch",
    "model": "tiny",
    "dtype": "float32",
    "topology": "shared",
    "batch_size": 4,
    "prompt_tokens": 5,
    "output_tokens": 6,
    "learning_rate": 0.01,
}
LORA: dict[str, Any] = {"lora_rank": 4, "lora_targets": "all_linear"}
QLORA: dict[str, Any] = {**LORA, "weights": "nf4"}
ALONE = TorchRanks(0, 1, torch.device("cpu"))
Take = Callable[..., list[Event]]
PROJECTION = "model.layers.1.mlp.down_proj.weight"

pytestmark = pytest.mark.usefixtures("frozen_libraries")


class _Heard:
    """A stream that keeps its events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, event: Event) -> None:
        self.events.append(event)


@pytest.fixture
def take(architecture: dict[str, Any]) -> Take:
    """Take a warm-up turn and two more in this process."""

    def run(**given: Any) -> list[Event]:
        settings = Turn(**{**BASE, **given})
        order = WorkOrder(
            point_id="tiny", settings=settings, architecture=architecture, device="cpu", steps=2, max_warmup_steps=1
        )
        stream: Any = _Heard()
        backend: Any = entry  # its ranks are its own kind
        run_session([order], backend, stream, lambda _place: None)
        events: list[Event] = stream.events
        return events

    return run


def _steps(events: list[Event]) -> list[Step]:
    return [event for event in events if isinstance(event, Step)]


@pytest.mark.parametrize(
    "given",
    [
        {"sleep_level": 0},
        {"sleep_level": 1},
        {"sleep_level": 2, "turns": 2},
        {"sleep_level": 2, "handover": "file"},
        {"handover": "file", "async_weight_syncing": True},
        {"handover": "direct", **LORA},
        {"handover": "file", "async_weight_syncing": True, **LORA},
        QLORA,
        {"handover": "file", **QLORA},
        {"loss": "grpo", "group_size": 2, "max_grad_norm": 0.1},
    ],
    ids=str,
)
def test_every_turn_passes_its_checks(take: Take, given: dict[str, Any]) -> None:
    """Phases follow each other, the engine's log-probabilities are the new weights', and bytes are counted."""
    settings = Turn(**{**BASE, **given})
    steps = _steps(take(**given))
    assert len(steps) == 3
    for step in steps:
        assert step.work.samples == 4 * settings.turns
        assert tuple(span.name for span in step.spans) == ordered_phases(settings)
        assert all(before.end_ns <= after.start_ns for before, after in zip(step.spans, step.spans[1:], strict=False))
        assert all(span.device_bytes for span in step.spans)
        assert step.values["logprob_gap_to_old"] > 10 * step.values["logprob_gap"]
        assert step.values["handover_bytes"] > 0
        assert step.values["staleness_turns"] == settings.async_weight_syncing
    offloaded = any(span.name == "trainer_offload" for step in steps for span in step.spans)
    assert offloaded == (settings.sleep_level > 0)


def test_the_first_sleep_is_reported_apart(take: Take) -> None:
    """It happens before the measured turns."""
    metrics = {event.name: event.value for event in take() if isinstance(event, Metric)}
    assert metrics["first_sleep_s"] > 0


def test_adapters_alone_are_handed_over(take: Take) -> None:
    """Two matrices of rank 4 at two projections in each of two layers; all weights are many times as large."""
    [adapters, whole] = (_steps(take(**given))[0].values["handover_bytes"] for given in ({"lora_rank": 4}, {}))
    assert adapters < whole / 10


def test_an_engine_with_other_weights_than_four_bits_leave_is_caught(
    take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the 16-bit weights that were packed it would answer by another policy than is trained."""
    monkeypatch.setattr("pybench.worker.backends.torch.turns.rounded", lambda **_packed: None)
    with pytest.raises(WrongResultError, match=r"_proj\.\S*weight: .* other bits than the trainer sent"):
        take(**QLORA)


def test_a_trainer_of_four_bits_takes_them_to_the_host(architecture: dict[str, Any]) -> None:
    """By hand: half a byte for a weight of a projection, a byte for the scale of 64; an engine holds float32."""
    trainers = [Trainer(Turn(**{**BASE, **given}), architecture, ALONE) for given in (QLORA, LORA)]
    hidden, wide = architecture["hidden_size"], architecture["intermediate_size"]
    heads, shared = (architecture[f"num_{name}_heads"] for name in ("attention", "key_value"))
    projections = architecture["num_hidden_layers"] * (
        2 * hidden * hidden * (heads + shared) // heads + 3 * hidden * wide
    )
    for trainer in trainers:
        trainer.offload_weights()
    packed, plain = (weights.host_bytes for trainer in trainers if (weights := trainer._weights) is not None)
    assert plain - packed == projections * 4 - projections // 2 - projections // 64
    for trainer in trainers:
        trainer.load()
    names = [dict(trainer.weights()) for trainer in trainers]
    assert names[0].keys() == names[1].keys()
    assert all(torch.isfinite(weight).all() for weight in names[0].values())


class _FastLanguageModel:
    """Unsloth's own, as far as a turn calls it: the library's layers and peft's adapters, as on a CPU."""

    @staticmethod
    def from_pretrained(*, model_name: str, dtype: torch.dtype, **_options: Any) -> tuple[Any, None]:
        return AutoModelForCausalLM.from_pretrained(model_name, dtype=dtype), None

    @staticmethod
    def get_peft_model(model: Any, *, use_gradient_checkpointing: object, **shape: Any) -> Any:
        del use_gradient_checkpointing
        return get_peft_model(model, LoraConfig(**shape))

    @staticmethod
    def for_training(model: Any, **_options: Any) -> Any:
        return model.train()


@pytest.fixture
def unsloth(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of its strategy's module, which is imported anew."""
    name = "pybench.worker.backends.torch.train.strategies.unsloth"
    library: Any = ModuleType("unsloth")
    library.FastLanguageModel = _FastLanguageModel
    monkeypatch.setitem(sys.modules, "unsloth", library)
    monkeypatch.setenv("UNSLOTH_WARN_UNINITIALIZED", "0")
    monkeypatch.setenv("UNSLOTH_VLLM_STANDBY", "0")
    sys.modules.pop(name, None)
    yield name
    sys.modules.pop(name, None)


def test_unsloth_is_imported_before_the_engine(unsloth: str) -> None:
    """It replaces parts of the engine's libraries, and must not change torch's allocator."""
    import_before_engine(Turn(**BASE))
    assert unsloth not in sys.modules
    import_before_engine(Turn(**BASE, strategy="unsloth"))
    assert unsloth in sys.modules
    assert os.environ["UNSLOTH_VLLM_STANDBY"] == "1"


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], None]:
    """Replace a method of the engine."""
    return lambda name, method: monkeypatch.setattr(TorchEngine, name, method)


def test_stale_weights_are_caught(take: Take, planted: Callable[[str, Any], None]) -> None:
    """An engine that keeps its weights holds other bits than were sent: the first of them is named."""
    planted("receive", lambda _self, _tensors: None)
    with pytest.raises(WrongResultError, match=r"model\.embed_tokens\.weight: .* other bits than the trainer sent"):
        take()


def test_one_wrong_tensor_is_caught(take: Take, planted: Callable[[str, Any], None]) -> None:
    """One element of one weight."""
    receive = TorchEngine.receive

    def wrong(self: TorchEngine, tensors: Any) -> None:
        receive(self, tensors)
        with torch.no_grad():
            self._parameters[PROJECTION][0, 0] += 1e-6

    planted("receive", wrong)
    with pytest.raises(WrongResultError, match=PROJECTION):
        take()


def test_two_exchanged_elements_are_caught(take: Take, planted: Callable[[str, Any], None]) -> None:
    """Their sum is right: places count."""
    receive = TorchEngine.receive

    def exchanged(self: TorchEngine, tensors: Any) -> None:
        receive(self, tensors)
        with torch.no_grad():
            row = self._parameters[PROJECTION][0]
            row[:2] = row[:2].flip(0).clone()

    planted("receive", exchanged)
    with pytest.raises(WrongResultError, match=PROJECTION):
        take()


def test_poisoned_weights_never_pass(take: Take, planted: Callable[[str, Any], None]) -> None:
    """After level 2 a handover that leaves one weight out leaves NaN there, whatever the memory held before."""
    receive = TorchEngine.receive
    planted("receive", lambda self, tensors: receive(self, [one for one in tensors if one[0] != PROJECTION]))
    with pytest.raises(WrongResultError, match=PROJECTION):
        take(sleep_level=2)


def test_a_wake_without_reload_is_caught(take: Take, planted: Callable[[str, Any], None]) -> None:
    """Nothing is handed over after level 2."""
    planted("receive", lambda _self, _tensors: None)
    with pytest.raises(WrongResultError, match="other bits"):
        take(sleep_level=2)


def test_an_engine_that_computes_with_other_weights_is_caught(take: Take, planted: Callable[[str, Any], None]) -> None:
    """It holds the right bits, and computes as if each logit were twice as large."""
    logits = TorchEngine._logits
    planted("_logits", lambda self, tokens: 2 * logits(self, tokens))
    with pytest.raises(WrongResultError, match="does not compute with the weights that it holds"):
        take()


def test_a_weight_that_training_leaves_alone_is_caught(take: Take) -> None:
    """A learning rate of 0 trains nothing."""
    with pytest.raises(WrongResultError, match="training changed no weight"):
        take(learning_rate=0.0)


def test_a_frozen_weight_that_changes_is_caught(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under adapters the base model stays as it is."""
    train = Trainer.train
    frozen = "model.layers.0.input_layernorm.weight"

    def touching(self: Trainer, sequences: torch.Tensor) -> None:
        train(self, sequences)
        with torch.no_grad():
            self.model.get_parameter(frozen).add_(0.5)

    monkeypatch.setattr(Trainer, "train", touching)
    with pytest.raises(WrongResultError, match=rf"{frozen}: .*"):
        take(**LORA)


def test_a_file_that_can_not_be_read_behind_the_work_is_named(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    """As what kept the thread from reading it, not as weights that did not arrive."""
    whole = delivery.read

    def broken(file: Any, device: torch.device) -> Any:
        if threading.current_thread() is not threading.main_thread():
            file.write_bytes(b"cut short")
        return whole(file, device)

    monkeypatch.setattr("pybench.worker.backends.torch.turns.read", broken)
    with pytest.raises(SafetensorError, match="header"):
        take(handover="file", async_weight_syncing=True)


def test_a_trainer_out_of_memory_says_what_the_engine_kept(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    """The amount, and the remedies."""

    def hungry(_self: Trainer, _sequences: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(Trainer, "train", hungry)
    with pytest.raises(RuntimeError, match=r"[\d.,]+ [GM]iB was in use with the engine asleep at level 1") as caught:
        take()
    assert cause_of(caught.value) == "out_of_memory"
    assert "Tried to allocate 2.00 GiB" in str(caught.value)


def test_a_files_folder_is_gone_afterwards(take: Take, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The folder of this process, and the folder of a process that was killed during a handover."""
    monkeypatch.setattr(delivery, "_MEMORY_FOLDER", tmp_path)
    (tmp_path / "pybench-handover-4194305-x").mkdir()  # above the kernel's greatest process id
    take(handover="file")
    assert list(tmp_path.iterdir()) == []
