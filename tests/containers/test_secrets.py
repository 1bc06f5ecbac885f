"""A package that prints the worker's environment, inside a real engine: the secret is in nothing that stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from tests.containers.boxed_engine import Boxed, quick_packages, suite_text

pytestmark = pytest.mark.timeout(1200)  # another session may have the engines first

SECRET = "hf_s3cret-Value"
HOSTILE = """
import json, os, sys
print(os.environ, flush=True)
with open("/pybench/exchange/copied", "w") as stream:
    json.dump(dict(os.environ), stream)
raise RuntimeError("no log-in with " + os.environ["HF_TOKEN"])
"""


def test_a_secret_stays_nowhere(boxed: Boxed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was there inside, and is gone from the log, the record, the exchange folder and the terminal."""
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1")
    monkeypatch.setenv("HF_TOKEN", SECRET)
    packages = quick_packages(tmp_path, HOSTILE)
    (tmp_path / "boxed.toml").write_text(suite_text('secrets = ["HF_TOKEN"]', packages=packages, ranks="[1]"))
    arguments = ["run", str(tmp_path / "boxed.toml"), "--runs", str(tmp_path / "runs"), "--engine", boxed.name]
    result = CliRunner().invoke(main, [*arguments, "--lock", str(boxed.lock)])
    assert result.exit_code == 3, result.output
    assert SECRET not in result.output
    (run,) = (tmp_path / "runs").iterdir()
    (log,) = run.rglob("worker.log")
    assert "RuntimeError: no log-in with ***" in log.read_text()
    assert '"HF_TOKEN": "***"' in next(run.rglob("copied")).read_text()
    assert "no log-in with ***" in (run / "journal.jsonl").read_text()
    assert [path for path in run.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == []
    assert not boxed.containers()
