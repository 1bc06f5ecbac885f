"""The files that ``pybench power`` writes: checked before anything runs, replaced only when whole."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pybench.cli.output_file import write_bytes, write_text
from pybench.model.errors import UsageError

if TYPE_CHECKING:
    from pybench.power.trace import PowerTrace


def check_trace_file(file: Path) -> None:
    """Refuse a trace that could not be written. Raises ``UsageError``."""
    if file.suffix not in {".csv", ".npz", ".parquet"}:
        raise UsageError(f'--trace {file}: "{file.suffix}" is not one of .csv, .npz, .parquet')
    if file.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise UsageError(f"--trace {file}: Parquet needs pyarrow; install it, or write .csv")


def write_trace_file(file: Path, trace: PowerTrace) -> None:
    """Write every reading, in the format of the file's suffix. Raises ``UsageError``."""
    from pybench.power.report.usage import trace_csv
    from pybench.power.trace_file import encode_trace

    if file.suffix == ".npz":
        write_bytes(file, encode_trace(trace))
    elif file.suffix == ".csv":
        write_text(file, trace_csv(trace))
    else:
        from io import BytesIO

        from pyarrow import csv, parquet

        table = csv.read_csv(BytesIO(trace_csv(trace).encode()))
        whole = BytesIO()
        parquet.write_table(table, whole)
        write_bytes(file, whole.getvalue())


def write_json(file: Path | None, value: object) -> None:
    """Write a value, if there is a file. Raises ``UsageError``."""
    if file is not None:
        write_text(file, json.dumps(value, indent=2) + "\n")
