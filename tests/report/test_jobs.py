"""The table of a whole job."""

from __future__ import annotations

from dataclasses import replace

from pybench.model.results import Estimate, JobResult
from pybench.report.formats import render
from pybench.report.run.view import RunView
from tests.builders import POINT_RESULT, RESULTS, estimate


def _job(gpus: int, hours: float, joules: float | None, saved: float | None = None) -> JobResult:
    fraction = None if saved is None else estimate(saved, "", saved - 0.004, saved + 0.004)
    return JobResult(
        benchmark="fit",
        point_id=f"fit[data_parallel={gpus}]",
        baseline_id=None if gpus == 1 else "fit[data_parallel=1]",
        num_gpus=gpus,
        samples=2686,
        epochs=3,
        steps=4029 // gpus,
        time_h=estimate(hours, "h", hours * 0.99, hours * 1.01),
        energy_j=None if joules is None else estimate(joules, "J", joules * 0.98, joules * 1.02),
        time_saved_fraction=fraction,
        energy_saved_fraction=None if joules is None else fraction,
    )


def _shown(*jobs: JobResult, name: str = "terminal") -> str:
    points = tuple(
        replace(POINT_RESULT, id=job.point_id, benchmark="fit", axes={"data_parallel": job.num_gpus}) for job in jobs
    )
    return render(RunView(results=replace(RESULTS, points=points, jobs=jobs)), name)


def test_a_job_on_a_terminal() -> None:
    """Side by side within 80 columns: hours, what is saved, GPU hours, joules."""
    text = _shown(_job(1, 8.0, 2.0e7), _job(4, 2.5, 2.2e7, 0.6875))
    assert max(map(len, text.splitlines())) <= 80
    table = [line.split() for line in text.partition("Job: ")[2].splitlines()]
    assert table[0] == ["2,686", "samples", "x", "3", "epochs,", "training", "steps", "alone"]
    assert table[1] == ["point", "GPUs", "h", "time", "saved", "GPU-h", "MJ", "energy", "saved"]
    assert table[3] == ["fit", "DP", "1", "1", "8.000", "±0.080", "-", "8", "20.00", "±0.40", "-"]
    assert table[4] == ["fit", "DP", "4", "4", "2.500", "±0.025", "68.8", "%", "10", "22.00", "±0.44", "68.8", "%"]


def test_without_a_sensor_there_is_no_column_of_energy() -> None:
    """And short jobs have minutes or seconds."""
    text = _shown(_job(1, 0.5, None), _job(2, 0.26, None, 0.48))
    (heads,) = [line.split() for line in text.splitlines() if "GPU-" in line]
    assert heads == ["point", "GPUs", "min", "time", "saved", "GPU-min"]


def test_gpu_hours_stand_where_they_are_not_hours() -> None:
    """One GPU's are the same number again; else they have the digits of the time."""
    assert "GPU-h" not in _shown(_job(1, 8.0, 2.0e7))
    shown = _shown(_job(1, 0.6725, None), _job(2, 0.3812, None, 0.4331))
    (last,) = (line for line in shown.splitlines() if line.startswith("fit DP 2") and "43.3 %" in line)
    assert last.split()[-1] == "45.74"


def test_a_spread_beyond_the_whole_is_no_figure() -> None:
    """Two noisy attempts: thousands of percent either way."""
    wild = replace(_job(2, 0.26, None), time_saved_fraction=Estimate(value=-0.3, low=-900.0, high=0.9, unit=""))
    assert "unclear" in _shown(_job(1, 0.5, None), wild)


def test_every_report_for_people_has_it() -> None:
    """The page and the summary too."""
    for name in ("html", "markdown"):
        assert "2,686 samples x 3 epochs" in _shown(_job(1, 8.0, 2.0e7), name=name)
