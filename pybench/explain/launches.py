"""Whether the CPU, which launches every kernel of a decode round, bounds it."""

from __future__ import annotations

from pybench.explain.comm_model.figures import NodeFigures, UnmeasuredError
from pybench.explain.comm_model.generation import decode_round
from pybench.explain.predicted_phases import generation_shape
from pybench.model.backend import BACKENDS
from pybench.model.suite import Point
from pybench.model.workloads.generate import Generate


def refuse_launch_bound(figures: NodeFigures, point: Point, samples: float, baseline_each: float) -> None:
    """Raise ``UnmeasuredError`` where launching a round's kernels takes longer than running them.

    More GPUs do not shorten such a round: neither a split model's, and what splitting adds on the CPU is measured by no
    microbenchmark, nor that of a replica which has fewer of the samples than ``baseline_each`` of the baseline's.
    """
    settings = point.settings
    if not isinstance(settings, Generate):
        return
    is_split = settings.tensor_parallel * settings.pipeline_parallel > 1
    if not is_split and samples / settings.data_parallel >= baseline_each:
        return
    if (bound := launch_bound(figures, point, samples)) is not None:
        raise UnmeasuredError(bound)


def launch_bound(figures: NodeFigures, point: Point, samples: float) -> str | None:
    """A sentence where launching a round's kernels takes longer than running them, else ``None``.

    The launches that are counted are a lower bound. Raises ``UnmeasuredError`` as a prediction of the round does.
    """
    settings, decoder = point.settings, point.shape
    per_layer = BACKENDS[settings.backend].launches_per_layer
    if per_layer is None or figures.launch_s is None or decoder is None or not isinstance(settings, Generate):
        return None
    shape, _ = generation_shape(settings, decoder, samples, 1)
    round_s = decode_round(figures, decoder, shape).total_s
    num_launches = per_layer * decoder.layers
    launches_s = num_launches * figures.launch_s
    if launches_s <= round_s:
        return None
    return (
        f"decode is CPU bound: its {num_launches} launches or more take {launches_s * 1e3:.3g} ms a token "
        f"({figures.launch_s * 1e6:.3g} us each), the GPUs need {round_s * 1e3:.3g} ms"
    )
