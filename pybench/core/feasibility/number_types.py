"""Types of numbers that GPUs compute in, by their compute capability, and what to set where the GPUs lack one.

The least capabilities are those of CUDA's programming guide (bfloat16, TF32: 8.0; FP8: 8.9). A GPU below them
computes by other types and converts, so its figures would be those of no type; vLLM refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pybench.model.backend import BACKENDS
from pybench.model.decoder_shape import DecoderShape
from pybench.model.devices import Devices
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import Settings

_LEAST = {
    "bfloat16": (8, 0),
    "tfloat32": (8, 0),
    "float8_e4m3fn": (8, 9),
    # Of weights alone: vLLM's kernels unpack them on GPUs without FP8 units, none of which is older than this.
    "fp8": (7, 5),
}
_SETTINGS = ("dtype", "mixed_precision", "precision", "burn_precision", "quantization")
"""Settings whose value is a type to compute in. What ``element`` and ``comm_hook`` name is moved and added only."""
_UNITS_ONLY = ("tfloat32", "float8_e4m3fn")
"""Types that a CPU has no substitute for."""


def has_type(name: str, there: Devices) -> bool:
    """Whether what is there computes in the type; a GPU that does not report its capability is taken to."""
    if there.kind == "cpu":
        return name not in _UNITS_ONLY
    return there.compute_capability is None or there.compute_capability >= _LEAST.get(name, (0, 0))


def type_reasons(settings: Settings, shape: DecoderShape | None, there: Devices) -> Iterator[str]:
    """Every setting that names a type which the devices, or the backend for this model, do not compute in."""
    for setting in _SETTINGS:
        value = getattr(settings, setting, None)
        if value is None or has_type(value, there):
            continue
        found = "none" if there.compute_capability is None else _text(there.compute_capability)
        least = f"GPUs of compute capability {_text(_LEAST[value])}, found {found}"
        yield f"{setting} = {value!r} needs {least}: {_remedy(setting, settings, shape, there)}"
    if isinstance(settings, Generate) and settings.dtype == "float16" and _overflows(settings, shape):
        model_type = shape.model_type if shape is not None else None
        yield f"backend {settings.backend} has no float16 for {model_type}: set dtype = 'bfloat16' or 'float32'"


def _remedy(setting: str, settings: Settings, shape: DecoderShape | None, there: Devices) -> str:
    if setting in {"mixed_precision", "quantization"}:
        return f"remove {setting}"
    if setting == "precision" and getattr(settings, setting) == "tfloat32":
        return "set precision = 'float32'"
    if setting == "dtype" and not _has_half(settings, shape):
        return "set dtype = 'float32'"
    narrow = "bfloat16" if has_type("bfloat16", there) else "float16"
    return f"set {setting} = '{narrow}'"


def _has_half(settings: Settings, shape: DecoderShape | None) -> bool:
    """AdamW's epsilon of 1e-8 is 0 in float16, so training takes no float16; nor do models whose sums overflow."""
    return isinstance(settings, Generate | Evaluate) and not _overflows(settings, shape)


def _overflows(settings: Settings, shape: DecoderShape | None) -> bool:
    return shape is not None and shape.model_type in BACKENDS[settings.backend].not_in_float16


def _text(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
