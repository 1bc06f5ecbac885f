"""``pybench power``: the sampler on the command line."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from pybench.cli.exit_codes import USAGE
from pybench.cli.io import echo, kept_writable, require_apart, terminal_options, write_bytes, write_json
from pybench.cli.params import FILE
from pybench.model.errors import MachineError, PybenchError, UsageError

_LONGEST_S = 86_400.0
_GPUS = click.option("--gpu", "indices", type=click.IntRange(0), multiple=True, help="Only this GPU; may be repeated.")
_JSON = click.option("--json", "json_file", type=FILE, metavar="FILE", help="Write the result there, too.")


def _finite(_context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no length of time", param=parameter)
    return value


@click.group()
def power() -> None:
    """Measure power and energy of GPUs."""


@power.command()
@_GPUS
@_JSON
def probe(indices: tuple[int, ...], json_file: Path | None) -> None:
    """Report periods, call costs and scopes of the power sensors."""
    from dataclasses import asdict

    from pybench.power.sensor_probe import probe_sensors
    from pybench.power.text import probe_text

    probes = probe_sensors(_uuids(indices))
    write_json(json_file, [asdict(probe) for probe in probes])
    echo(probe_text(probes), nl=False)


@power.command()
@_GPUS
@_JSON
def calibrate(indices: tuple[int, ...], json_file: Path | None) -> None:
    """Fit each GPU's power sensor to a known load.

    It takes some 65 s a GPU and needs torch with CUDA. The model is stored in the user's cache for this GPU and
    driver, and later runs use it.
    """
    from dataclasses import asdict, replace

    from pybench.power.calibrate import calibrate as calibrate_gpu
    from pybench.power.sensor import calibration_path, write_calibration
    from pybench.power.text import calibration_text

    calibrations = []
    for uuid in _uuids(indices):
        calibration = calibrate_gpu(uuid)
        path = None
        if calibration.model is not None:
            try:
                path = write_calibration(calibration.uuid, calibration.driver, calibration.model)
            except OSError as error:  # what was fitted is shown all the same
                calibration = replace(calibration, reason=f"{calibration_path(uuid)}: {error.strerror}")
        calibrations.append(calibration)
        echo(calibration_text(calibration, path), nl=False)
    write_json(json_file, [asdict(calibration) for calibration in calibrations])
    if any(calibration.reason is not None for calibration in calibrations):
        raise MachineError("power calibrate: not every GPU's sensor was fitted and stored")


@power.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_GPUS
@_JSON
@click.option("--trace", "trace_file", type=FILE, metavar="FILE", help="Write the readings: .csv or .npz.")
@click.option("--plot", "plot_file", type=FILE, metavar="FILE", help="Write a page of watts over time, .html.")
@click.option("--period-ms", type=click.FloatRange(min=0, min_open=True), callback=_finite,
              help="The load's own period, if it has one.")  # fmt: skip
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
    """Run COMMAND and report its energy; exit with its exit code."""
    from pybench.power.measured_command import record_command
    from pybench.power.page import render
    from pybench.power.text import energy_json, energy_table, trace_csv
    from pybench.power.trace_file import encode_trace

    if trace_file is not None and trace_file.suffix not in {".csv", ".npz"}:
        raise UsageError(f'--trace {trace_file}: "{trace_file.suffix}" is not one of .csv, .npz')
    if plot_file is not None and plot_file.suffix != ".html":
        raise UsageError(f'--plot {plot_file}: "{plot_file.suffix}" is not .html')
    files = (("--json", json_file), ("--trace", trace_file), ("--plot", plot_file))
    require_apart(files)
    for option, file in files:
        if file is not None:
            ctx.with_resource(kept_writable(option, file))
    used = record_command(command, _uuids(indices), None if period_ms is None else period_ms / 1e3)
    result = (used.energy, used.package_j, used.package_reason)
    _say(energy_table(*result, width=terminal_options()["width"]))
    written = {"command": list(used.argv), "exit_code": used.exit_code, **energy_json(*result)}
    encoders: dict[str, Any] = {".npz": encode_trace, ".csv": lambda trace: trace_csv(trace).encode()}
    writers: tuple[tuple[Path | None, Callable[[Path], None]], ...] = (
        (json_file, lambda file: write_json(file, written)),
        (trace_file, lambda file: write_bytes(file, encoders[file.suffix](used.trace))),
        (plot_file, lambda file: write_bytes(file, render(used).encode())),
    )
    failed = False
    for chosen, write in writers:
        try:
            if chosen is not None:
                write(chosen)
        except PybenchError as error:  # the other files are written all the same
            failed = True
            _say(f"pybench: {error}\n")
    ctx.exit(used.exit_code or (USAGE if failed else 0))


@power.command()
@_GPUS
@click.option("--interval", type=click.FloatRange(0.1, _LONGEST_S), default=1.0, show_default=True, callback=_finite,
              help="Seconds between lines.")  # fmt: skip
@click.option("--count", type=click.IntRange(1), help="End after so many lines; default: at Ctrl-C.")
def watch(indices: tuple[int, ...], interval: float, count: int | None) -> None:
    """Print the newest power of every GPU, line by line."""
    from itertools import repeat

    from pybench.power.recorder import POLLED_PERIOD_S, PowerRecorder

    with PowerRecorder(_uuids(indices), polled_period_s=min(interval, POLLED_PERIOD_S)) as sampler:
        for _ in repeat(None) if count is None else repeat(None, count):
            time.sleep(interval)
            watts = list(sampler.latest_power_w().values())
            shown = "  ".join("unknown" if value is None else f"{value:7.1f} W" for value in watts)
            echo(f"{time.strftime('%H:%M:%S')}  {shown}")


def _say(text: str) -> None:
    """Write to standard error; if it is full or closed, the command's exit code stays."""
    with suppress(OSError):
        echo(text, nl=False, err=True)


def _uuids(indices: tuple[int, ...]) -> list[str]:
    """UUIDs of the named GPUs, else of all visible ones."""
    from pybench.machine.gpus import gpus_to_measure

    found = gpus_to_measure()
    there = {gpu.index: gpu.uuid for gpu in found.gpus}
    if absent := [index for index in indices if index not in there]:
        known = "; ".join((f"there are {', '.join(map(str, there))}", *found.faults))
        raise UsageError(f"--gpu {absent[0]}: no such GPU; {known}")
    for fault in found.faults:
        echo(f"pybench: {fault}; left out", err=True)
    return [there[index] for index in dict.fromkeys(indices)] or list(there.values())
