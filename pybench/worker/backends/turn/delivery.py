"""Weights on their way from the trainer to the engine, and the checks of their arrival."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from pybench.model.workloads.turn import Turn
from pybench.worker.backend import WrongResultError
from pybench.worker.backends.torch.train.update import lora_options

Named = tuple[str, torch.Tensor]

_LENGTH_BYTES = 8
# The file, and some room for other users of shared memory, such as buffers of NCCL.
_ROOM = 1.1
_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - a file that vanishes with the turn, under a name of this process
_PREFIX = "pybench-handover-"
_PEFT_PREFIX = "base_model.model."
ADAPTER_FILE = "adapter_model.safetensors"


class HandoverFolder:
    """A folder for one file of weights, in shared memory where it has room, else in the working directory.

    Folders of processes that were killed are removed when the next one is made.
    """

    def __init__(self, num_bytes: int) -> None:
        for folder in _MEMORY_FOLDER.glob(f"{_PREFIX}*"):
            pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(folder, ignore_errors=True)
        in_memory = _MEMORY_FOLDER.is_dir() and shutil.disk_usage(_MEMORY_FOLDER).free > _ROOM * num_bytes
        parent = _MEMORY_FOLDER if in_memory else Path.cwd()
        self._places: dict[str, torch.Tensor] = {}
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))

    @torch.no_grad()
    def write(self, weights: Iterable[Named], adapter: Mapping[str, object] | None) -> Path:
        """Write all weights to one file, with an adapter's config next to it in peft's form; returns the file.

        The first call makes the file. Later calls copy the weights to their places in it: a second copy would double
        the host memory and take time to write.
        """
        rename = peft_name if adapter is not None else str
        file = self.path / ("model.safetensors" if adapter is None else ADAPTER_FILE)
        if self._places:
            for name, tensor in weights:
                self._places[rename(name)].copy_(tensor)
            return file
        host = {rename(name): tensor.contiguous().to("cpu", copy=True) for name, tensor in weights}
        save_file(host, file, metadata={"format": "pt"})
        # The file begins with the length of its header in 8 bytes; the header has each tensor's range behind it in
        # JSON (the safetensors format).
        flat = torch.from_file(str(file), shared=True, size=file.stat().st_size, dtype=torch.uint8)
        begin = _LENGTH_BYTES + int.from_bytes(flat[:_LENGTH_BYTES].numpy().tobytes(), "little")
        header = json.loads(flat[_LENGTH_BYTES:begin].numpy().tobytes())
        for name, weight in host.items():
            start, end = header[name]["data_offsets"]
            self._places[name] = flat[begin + start : begin + end].view(weight.dtype).view(weight.shape)
        if adapter is not None:
            (self.path / "adapter_config.json").write_text(json.dumps(adapter), encoding="utf-8")
        return file

    def remove(self) -> None:
        """Free the memory that the file takes."""
        self._places.clear()
        shutil.rmtree(self.path, ignore_errors=True)


def read(file: Path, device: torch.device) -> Iterator[Named]:
    """Each weight of a file, on ``device`` when its turn comes; adapters by the trainer's names."""
    with safe_open(file, framework="pt", device=str(device)) as weights:
        for name in weights.keys():  # noqa: SIM118 - it is no mapping
            plain = name.removeprefix(_PEFT_PREFIX)
            trainer_name = plain if plain == name else plain.removesuffix(".weight") + ".default.weight"
            yield trainer_name, weights.get_tensor(name)


def peft_name(name: str) -> str:
    """Name in a file of adapters, of the name that the trainer's model gives to the adapter ``default``."""
    return f"{_PEFT_PREFIX}{name.replace('.default', '')}"


def adapter_config(settings: Turn) -> dict[str, object] | None:
    """The adapters' shape as peft's config has it; ``None`` where all weights are trained."""
    if settings.lora_rank is None:
        return None
    return {"peft_type": "LORA", **lora_options(settings.training), "fan_in_fan_out": False}


# Elements of a chunk. Each needs 16 bytes: a chunk fits a CPU's cache, or keeps a GPU busy.
_CHUNK = {"cpu": 2**16, "cuda": 2**24}
# Odd numbers of 62 bits (from the digits of pi and e): neighbouring places get weights that are far apart.
_STEP, _START = 0x243F6A8885A308D3 >> 2 | 1, 0x2B7E151628AED2A7 >> 2 | 1
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@torch.no_grad()
def digest(tensor: torch.Tensor) -> int:
    """Sum of every element's bits, each times an odd weight of its place, modulo 2^64; computed on its device.

    Bits count, not values: it distinguishes zeros of both signs, and NaNs. One wrong element always shows.
    """
    bits = tensor.detach().contiguous().view(-1).view(_INTEGERS[tensor.element_size()])
    size = _CHUNK[bits.device.type]
    places = torch.arange(min(size, bits.numel()), dtype=torch.int64, device=bits.device) * _STEP
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for start in range(0, bits.numel(), size):
        part = bits[start : start + size].to(torch.int64)
        first = (start * _STEP + _START + 2**63) % 2**64 - 2**63  # the same 64 bits as a signed number
        weights = places[: part.numel()].add(first).bitwise_or_(1)
        total += weights.mul_(part).sum()
    return int(total.item()) % 2**64


Digests = list[dict[str, int]]
"""The digests of each shard's part of every weight, by name."""

_MOST_GAP = {"float32": (1e-3, 1e-4), "bfloat16": (0.05, 0.02), "float16": (0.05, 0.02)}
"""Nats, and more as a fraction of the log-probabilities themselves, whose logits are rounded in proportion.

Engines and trainers that hold the same bfloat16 weights are 0.01 to 0.02 apart (NeMo RL, vime).
"""
_TIMES_NEARER = 2.0


def check_changed(before: Digests, after: Digests, trainable: Sequence[str]) -> int:
    """Number of trained weights that kept every bit on every shard: their type can't hold so small an update.

    At bfloat16 a weight of 1 changes by steps of 0.004 and more. Raises :class:`WrongResultError` where no trained
    weight changed, and for a frozen one that did.
    """
    names = list(dict.fromkeys(name for shard in after for name in shard))
    pairs = list(zip(before, after, strict=True))
    changed = {name for name in names if any(old.get(name) != new.get(name) for old, new in pairs)}
    if frozen := changed.difference(trainable):
        raise WrongResultError(f"{min(frozen)}: training changed this frozen weight")
    if names and not changed:
        raise WrongResultError("training changed no weight; set a larger learning_rate")
    return len(set(trainable) & set(names)) - len(changed)


def check_received(sent: Digests, held: Digests) -> None:
    """Raise :class:`WrongResultError` for a weight of which a shard does not hold the bits that were sent."""
    for shard, (expected, actual) in enumerate(zip(sent, held, strict=True)):
        for name, number in expected.items():
            if name not in actual:
                raise WrongResultError(f"{name}: shard {shard} of the engine holds no such weight")
            if actual[name] != number:
                raise WrongResultError(f"{name}: shard {shard} of the engine holds other bits than the trainer sent")


def check_computes(computed: torch.Tensor, new: torch.Tensor, old: torch.Tensor, dtype: str) -> dict[str, float]:
    """Mean distances of the engine's log-probabilities from the trainer's, new and old.

    Raises :class:`WrongResultError` where the engine does not compute with the new weights.
    """
    gap, gap_to_old = (float((computed - other).abs().mean()) for other in (new, old))
    least, fraction = _MOST_GAP[dtype]
    allowed = least + fraction * float(new.abs().mean())
    if not gap <= allowed:  # NaN must not pass
        raise WrongResultError(
            f"the engine's log-probabilities lie {gap:.3g} nats from the trainer's, allowed are {allowed:.3g}: "
            "it does not compute with the weights that it holds"
        )
    if gap_to_old < _TIMES_NEARER * gap:
        raise WrongResultError(
            f"the engine's old and new weights can't be distinguished: its log-probabilities differ by {gap:.3g} nats "
            f"from the trainer's new ones and by {gap_to_old:.3g} from the previous turn's; set a larger learning_rate"
        )
    return {"logprob_gap": gap, "logprob_gap_to_old": gap_to_old}
