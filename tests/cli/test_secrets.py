"""A worker that prints its environment: the secret it was given is in nothing that stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest
from click.testing import CliRunner

from pybench.cli.main import main

Drill = Callable[..., tuple[str, ...]]
SECRET = "hf_s3cret-Value"  # nothing else here is spelled so


def ask_for_it(here: Path) -> None:
    suite = (here / "drill.toml").read_text()
    (here / "drill.toml").write_text(
        suite.replace("[[benchmark]]", '[container]\nsecrets = ["HF_TOKEN"]\n\n[[benchmark]]', 1)
    )


def test_a_secret_stays_nowhere(here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the log, the record, the exchange folder, a report, or on the terminal; the rest of the log is there."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    arguments = drill("leak")
    ask_for_it(here)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 3
    assert "can't log in with ***" in result.output
    assert SECRET not in result.output
    (run,) = (here / "runs").iterdir()
    logs = [path.read_text() for path in run.rglob("worker.log")]
    assert len(logs) == 4
    assert all("'HF_TOKEN': '***'" in log for log in logs)
    assert [path for path in run.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == []
    assert (next(run.rglob("notes.txt"))).read_text() == "the token is ***\n"


def test_a_secret_that_is_a_word_of_the_suite(here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its attempts are those of the plan, and the run ends."""
    monkeypatch.setenv("HF_TOKEN", "decode")
    arguments = drill()
    ask_for_it(here)
    assert CliRunner().invoke(main, (*arguments, "--time-limit", "30s")).exit_code == 0
    (run,) = (here / "runs").iterdir()
    records = [json.loads(line)["record"] for line in (run / "journal.jsonl").read_text().splitlines()]
    assert [record["point_id"][-2] for record in records] == ["1", "2", "2", "1"]
    assert all((run / record["log"]).exists() for record in records)


def test_a_secret_that_was_not_asked_for_reaches_no_worker(
    here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a container, too."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert CliRunner().invoke(main, drill("leak")).exit_code == 3
    (run,) = (here / "runs").iterdir()
    assert "KeyError: 'HF_TOKEN'" in next(run.rglob("worker.log")).read_text()


PLANTED = {
    "VLLM_MIRROR_URL": "https://user:PL@NTEDpw9tail@mirror.invalid",
    "TRITON_REMOTE": "https://user:PLAN/TEDpw10@mirror.invalid/x",
    "VLLM_STORE_URL": "https://s3.invalid/b?X-Amz-Signature=PLANTEDsig11&X-Amz-Expires=3600",
    "HF_ENDPOINT": "https://u:PLANTEDpw8@mirror.invalid",
    "NCCL_HOOK": "https://PLANTEDuser@mirror.invalid#PLANTEDfrag",
    "VLLM_ARGS": "--api-key PLANTED-k3y --max-tokens=128",
    "TORCH_JSON": '{"token": "PLANTEDjson1", "dtype": "bfloat16"}',
    "CUDA_BLOB": "a1:PLANTEDaBcD0123456789xyz",
    **{f"VLLM_{word}": f"PLANTED{word}1" for word in ("PASS", "PASSPHRASE", "API_CREDS", "BEARER", "HEADERS")},
    "VLLM_AUTHORIZATION": "Bearer PLANTED",
    "TORCH_PAT": "PLANTED",
    "HF_TOKENS": "PLANTED,PLANTED",
}
SETTINGS = {"VLLM_MAX_TOKENS": "128", "NCCL_PASS": "on", "NCCL_IB_HCA": "mlx5_0:1,mlx5_1:1", "TORCH_URL": "tcp://a:1/b"}


def test_credentials_within_variables_that_tune(here: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that gets and prints them leaves none of them in any file, the bundle, or on the terminal."""
    for name, value in {**PLANTED, **SETTINGS, "HF_TOKEN": SECRET}.items():
        monkeypatch.setenv(name, value)
    arguments = drill("leak")
    ask_for_it(here)
    outputs = [CliRunner().invoke(main, arguments).output]
    (run,) = (here / "runs").iterdir()
    logs = "".join(path.read_text() for path in run.rglob("worker.log"))
    assert all(f"'{name}': '{value}'" in logs for name, value in SETTINGS.items())
    assert "'VLLM_MIRROR_URL': 'https://***@mirror.invalid'" in logs
    commands = (("report", str(run), "-v"), ("bundle", str(run), "-o", "run.zip"))
    outputs += [CliRunner().invoke(main, words).output for words in commands]
    files = [path for path in here.rglob("*") if path.is_file() and path.name not in {"drill.toml", "python"}]
    texts = {str(path): path.read_bytes() for path in files} | {"terminal": "".join(outputs).encode()}
    with ZipFile(here / "run.zip") as bundle:
        texts |= {f"bundle:{name}": bundle.read(name) for name in bundle.namelist()}
    parts = (b"PLAN", b"TEDpw", b"pw9tail", SECRET.encode())
    assert {(name, part) for name, text in texts.items() for part in parts if part in text} == set()
    environment = json.loads((run / "manifest.json").read_text())["environment"]
    assert environment["VLLM_STORE_URL"] == "https://s3.invalid/b?***"
    assert environment["VLLM_ARGS"] == "--api-key *** --max-tokens=128"
    assert environment["TORCH_JSON"] == '{"token": "***", "dtype": "bfloat16"}'
    assert {name: environment[name] for name in SETTINGS} == SETTINGS
