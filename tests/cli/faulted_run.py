"""Runs ``pybench`` again and again with one of its system calls failing; see ``fault_sweep.py``.

Started with the library of ``tests/native/system_call_faults.cpp``. It imports everything once, then makes a process
for each line of its input: a JSON object of the folder to stand in, the arguments, and the fault.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from pybench.cli.main import main
from tests.warm_python import import_everything

FAULTS = ctypes.CDLL(None)


def run(folder: str, arguments: list[str], call: str | None, **fault: int) -> int:
    """In a process of its own: the exit code of ``pybench``, or 99 after a traceback. Without a call all are logged."""
    os.chdir(folder)
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), stream)
    if call is None:
        FAULTS.faults_log(os.open("calls", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
    else:
        place = ctypes.c_int64(fault["place"])
        FAULTS.faults_arm(call.encode(), place, fault["error"], fault["kinds"], fault["goes_on"])
    code: Any = 99
    try:
        main(arguments)
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:  # noqa: BLE001 - whatever gets here is a defect
        traceback.print_exc()
    failed = FAULTS.faults_disarm()
    sys.stdout.flush()
    sys.stderr.flush()
    Path("hit").write_text(str(failed), encoding="utf-8")
    return int(code)


import_everything()
gc.freeze()  # so that the processes share what is here
for line in sys.stdin:
    if (pid := os.fork()) == 0:
        code = 98
        try:
            code = run(**json.loads(line))
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
