"""``pybench power``: the sampler on the command line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pybench.model.trace import PowerTrace

_FILE = click.Path(path_type=Path, dir_okay=False)
_GPUS = click.option("--gpu", "indices", type=click.IntRange(0), multiple=True, help="Only this GPU; may be repeated.")


@click.group()
def power() -> None:
    """Measure power and energy of GPUs."""


@power.command()
@_GPUS
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write the result there, too.")
def probe(indices: tuple[int, ...], json_file: Path | None) -> None:
    """Say what the power sensors can do: periods, call costs, scopes."""
    from pybench.machine.sensor_probe import probe_sensors
    from pybench.report.sensor_probe import as_json, render

    found = probe_sensors(_uuids(indices))
    _write_json(json_file, as_json(found))
    click.echo(render(found), nl=False)


@power.command()
@_GPUS
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write the result there, too.")
@click.option("--trace", "trace_file", type=_FILE, metavar="FILE", help="Write the readings: .csv, .npz or .parquet.")
def calibrate(indices: tuple[int, ...], json_file: Path | None, trace_file: Path | None) -> None:
    """Fit each GPU's power sensor to a known load, some 65 s a GPU; later runs use it.

    The load needs torch with CUDA. What is found is stored in the user's cache for this GPU under this driver.
    """
    from dataclasses import asdict

    from pybench.machine.calibrate import calibrate as calibrate_gpu
    from pybench.machine.calibration_file import write_calibration
    from pybench.model.errors import MachineError
    from pybench.report.calibration import render

    uuids = _uuids(indices)
    if trace_file is not None:
        _check_trace_file(trace_file)
        if len(uuids) > 1:
            from pybench.model.errors import UsageError

            raise UsageError("--trace: of one GPU only; name it with --gpu")
    found = []
    for uuid in uuids:
        calibration, trace = calibrate_gpu(uuid)
        found.append(calibration)
        path = None
        if calibration.model is not None:
            path = write_calibration(calibration.uuid, calibration.driver, calibration.model)
        click.echo(render(calibration, path), nl=False)
        if trace_file is not None:
            _write_trace(trace_file, trace)
    _write_json(json_file, [asdict(calibration) for calibration in found])
    if any(calibration.model is None for calibration in found):
        raise MachineError("power calibrate: not every GPU's sensor was fitted; nothing is stored for those")


@power.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_GPUS
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write the result there, too.")
@click.option("--trace", "trace_file", type=_FILE, metavar="FILE", help="Write the readings: .csv, .npz or .parquet.")
@click.option("--plot", "plot_file", type=_FILE, metavar="FILE", help="Draw watts over time: .svg.")
@click.option("--period-ms", type=click.FloatRange(min=0, min_open=True), help="The load's own period, if it has one.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def record(
    ctx: click.Context,
    indices: tuple[int, ...],
    json_file: Path | None,
    trace_file: Path | None,
    plot_file: Path | None,
    period_ms: float | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND and say what energy it used; exit with its exit code."""
    from pybench.report.power import as_json, render
    from pybench.report.power_plot import svg
    from pybench.runner.power_command import record_command

    if trace_file is not None:
        _check_trace_file(trace_file)
    for option, file in (("--json", json_file), ("--trace", trace_file), ("--plot", plot_file)):
        if file is not None:
            _check_writable(option, file)
    found = record_command(command, _uuids(indices), None if period_ms is None else period_ms / 1e3)
    result = (found.energy, found.package_j, found.package_reason)
    _write_json(json_file, {"command": list(found.argv), "exit_code": found.exit_code, **as_json(*result)})
    if trace_file is not None:
        _write_trace(trace_file, found.trace)
    if plot_file is not None:
        _write(plot_file, svg(found.trace, found.energy))
    click.echo(render(*result), nl=False, err=True)
    ctx.exit(found.exit_code)


@power.command()
@_GPUS
@click.option("--interval", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Seconds between lines.")
@click.option("--count", type=click.IntRange(1), help="End after so many lines; default: at Ctrl-C.")
def watch(indices: tuple[int, ...], interval: float, count: int | None) -> None:
    """Print the newest power of every GPU, line by line."""
    from itertools import repeat

    from pybench.machine.power_recorder import PowerRecorder

    with PowerRecorder(_uuids(indices)) as sampler:
        for _ in repeat(None) if count is None else repeat(None, count):
            time.sleep(interval)
            watts = list(sampler.latest_power_w().values())
            shown = "  ".join("unknown" if value is None else f"{value:7.1f} W" for value in watts)
            click.echo(f"{time.strftime('%H:%M:%S')}  {shown}")


def _uuids(indices: tuple[int, ...]) -> list[str]:
    """Of the GPUs asked for, all that are visible unless some are named."""
    from pybench.machine.gpus import find_gpus
    from pybench.model.errors import MachineError, UsageError

    found = find_gpus()
    if not found.gpus:
        raise MachineError(f"no power to measure: {found.reason}")
    there = {gpu.index: gpu.uuid for gpu in found.gpus}
    if absent := [index for index in indices if index not in there]:
        told = "; ".join((f"there are {', '.join(map(str, there))}", *found.faults))
        raise UsageError(f"--gpu {absent[0]}: no such GPU; {told}")
    for fault in found.faults:
        click.echo(f"pybench: {fault}; left out", err=True)
    return [there[index] for index in indices] or list(there.values())


def _check_trace_file(file: Path) -> None:
    """Refuse a trace that could not be written before anything is run for it."""
    from importlib.util import find_spec

    from pybench.model.errors import UsageError

    if file.suffix not in {".csv", ".npz", ".parquet"}:
        raise UsageError(f'--trace {file}: "{file.suffix}" is not one of .csv, .npz, .parquet')
    if file.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise UsageError(f"--trace {file}: Parquet needs pyarrow; install it, or write .csv")


def _check_writable(option: str, file: Path) -> None:
    """Refuse a file that can't be written, and leave none behind that was not there."""
    from pybench.model.errors import UsageError

    was_there = file.exists()
    try:
        file.open("ab").close()
    except OSError as error:
        raise UsageError(f"{option} {file}: cannot be written: {error.strerror}; nothing was run") from error
    if not was_there:
        file.unlink()


def _write_trace(file: Path, trace: PowerTrace) -> None:
    from pybench.machine.trace_file import write_trace
    from pybench.report.power import trace_csv

    if file.suffix == ".npz":
        write_trace(trace, file)
    elif file.suffix == ".csv":
        _write(file, trace_csv(trace))
    else:
        from io import BytesIO

        from pyarrow import csv, parquet

        parquet.write_table(csv.read_csv(BytesIO(trace_csv(trace).encode())), file)


def _write_json(file: Path | None, value: object) -> None:
    if file is not None:
        _write(file, json.dumps(value, indent=2) + "\n")


def _write(file: Path, text: str) -> None:
    from pybench.model.errors import UsageError

    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from error
