"""Metrics of training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from pybench.core.flops import hardware_flops_per_token, model_flops_per_token, num_parameters
from pybench.core.gpu_models import gpu_peak
from pybench.core.joint_step import JointStep, energy_imbalance, stage_use
from pybench.model.decoder_shape import DecoderShape
from pybench.model.record import Energy
from pybench.model.suite import Point, TrainingJob
from pybench.model.workloads.generate import percentiles
from pybench.model.workloads.train import Train

_PERCENTILES = (50, 90, 99)
_S_PER_H = 3600


def of_step(point: Point, step: JointStep) -> dict[str, float | None]:
    """Rates over the joint length; utilisation where the GPU's peak is known."""
    samples, settings = step.first.work.samples, _settings(point)
    tokens_per_s = samples * settings.sequence_tokens / step.length_s
    waits_s = [rank.values["input_wait_s"] for rank in step.ranks if "input_wait_s" in rank.values]
    busy_s = [rank.values["stage_busy_s"] for rank in step.ranks if "stage_busy_s" in rank.values]
    utilisation: dict[str, float | None] = {}
    if point.shape is not None:
        needed = tokens_per_s / point.num_gpus * model_flops_per_token(point.shape, settings)
        done = tokens_per_s / point.num_gpus * hardware_flops_per_token(point.shape, settings)
        board = gpu_peak(step.device_name)
        peak = board.flops_per_s(settings.computing_dtype) if board else None
        utilisation = {
            "flops_per_s_per_gpu": needed,
            "mfu_fraction": None if peak is None else needed / peak,
            "hfu_fraction": None if peak is None else done / peak,
        }
    return {
        "tokens_per_s": tokens_per_s,
        "samples_per_s": samples / step.length_s,
        "model_flops": None if point.shape is None else samples * _sample_flops(point, point.shape),
        "loss": step.first.loss,
        "input_wait_fraction": max(waits_s) / step.length_s if waits_s else None,
        "job_h": None if point.job is None else job_steps(point.job, samples) * step.length_s / _S_PER_H,
        **stage_use(busy_s, step.length_s),
        **utilisation,
    }


def of_attempt(point: Point, steps: Sequence[JointStep], reported: Mapping[str, float]) -> dict[str, float]:
    """Percentiles of the steps' lengths, interpolated between the two nearest; shares of LoRA and of evaluation.

    The share of evaluation is e / (n s + e), with e its length, n the steps between two, and s the median step.
    """
    lengths_s = [step.length_s for step in steps]
    values_s = percentiles(sorted(lengths_s), _PERCENTILES)
    metrics = {f"step_p{percent}_s": value for percent, value in zip(_PERCENTILES, values_s, strict=True)}
    every, evaluation_s = _settings(point).evaluation_every_steps, reported.get("evaluation_s")
    if every is not None and evaluation_s is not None:
        metrics["evaluation_overhead_fraction"] = evaluation_s / (every * median(lengths_s) + evaluation_s)
    trained = reported.get("trained_parameters")
    if trained is not None and point.shape is not None and _settings(point).lora_rank is not None:
        metrics["trained_fraction"] = trained / (num_parameters(point.shape) + trained)
    return metrics


def shares(point: Point, steps: Sequence[JointStep]) -> dict[str, float]:
    """Divisors of the joules of all steps."""
    samples = sum(step.first.work.samples for step in steps)
    of_step = steps[0].first.work.samples
    of_job = {} if point.job is None else {"job_energy_j": len(steps) / job_steps(point.job, of_step)}
    return {"energy_j_per_token": samples * _settings(point).sequence_tokens, **of_job}


def of_energy(point: Point, steps: Sequence[JointStep], energy: Energy) -> dict[str, float | None]:
    """Metrics made of joules."""
    imbalance = {"energy_imbalance_fraction": energy_imbalance(energy)}
    if point.shape is None or not energy.energy_j:
        return imbalance
    samples = sum(step.first.work.samples for step in steps)
    return {**imbalance, "model_flops_per_j": samples * _sample_flops(point, point.shape) / energy.energy_j}


def _sample_flops(point: Point, shape: DecoderShape) -> float:
    settings = _settings(point)
    return settings.sequence_tokens * model_flops_per_token(shape, settings)


def _settings(point: Point) -> Train:
    assert isinstance(point.settings, Train)
    return point.settings


def job_steps(job: TrainingJob, samples_of_step: int) -> int:
    """Steps of all epochs: an epoch's sequences over those of a step, the last step of an epoch counted whole.

    ``samples_of_step`` is the measured effective batch in sequences, since an ``auto`` batch size is found by a run.
    """
    return job.epochs * math.ceil(job.samples / samples_of_step)
