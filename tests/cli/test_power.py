"""``pybench power`` on the fake driver, whose joules are known."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from pybench.power.recorder import sampler_unavailable_reason
from tests.bounds import near

pytest.importorskip("pybench._nvml", reason="the extension is not built")

Tell = Callable[..., None]
# Opens without waiting for a writer, so that the pipe has a reader once "open" is printed.
READER = """
import os, select, sys
pipe = os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)
print("open", flush=True)
select.select([pipe], [], [])
os.set_blocking(pipe, True)
while part := os.read(pipe, 65536):
    os.write(1, part)
"""
SLEEP = (sys.executable, "-c", "import time; time.sleep(0.4)")


def invoke(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["power", *(str(argument) for argument in arguments)])
    return result.exit_code, result.output


def test_record_writes_the_joules_of_the_command(
    fake_nvml: Tell, fake_truth_j: Callable[[int | None, int], float], tmp_path: Path
) -> None:
    fake_nvml(load="square:120:680:150", sensor="h200")
    files = {suffix: tmp_path / f"out.{suffix}" for suffix in ("json", "csv", "html")}
    options = ("--json", files["json"], "--trace", files["csv"], "--plot", files["html"])
    code, output = invoke("record", *options, "--", *SLEEP)
    assert code == 0
    assert "scope: gpu_board" in output
    result = json.loads(files["json"].read_text())
    start_ns, end_ns = (result["window"][f"{end}_monotonic_ns"] for end in ("start", "end"))
    assert end_ns - start_ns >= 0.4e9
    assert [gpu["index"] for gpu in result["gpus"]] == [0, 1]
    for gpu in result["gpus"]:
        truth_j = fake_truth_j(gpu["index"], end_ns) - fake_truth_j(gpu["index"], start_ns)
        assert near(truth_j, gpu["energy_low_j"], gpu["energy_high_j"]), (truth_j, gpu)
        assert gpu["mean_power_w"] == pytest.approx(gpu["energy_j"] / ((end_ns - start_ns) / 1e9))
        assert gpu["method"] == "counter+series"
    head, *rows = (line.split(",") for line in files["csv"].read_text().splitlines())
    assert head == ["monotonic_ns", "gpu", "source", "value", "unit"]
    # All on one clock: the driver's buffer begins 2.4 s before the sampler.
    spans_s = {row[2]: ((int(row[0]) - start_ns) / 1e9, (end_ns - int(row[0])) / 1e9) for row in rows}
    assert set(spans_s) >= {"counter", "series", "instant", "average"}
    assert all(-10 < since_s < 60 and -10 < before_s < 60 for since_s, before_s in spans_s.values())
    assert files["html"].read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_record_passes_the_exit_code_on(fake_nvml: Tell, script: str, code: int) -> None:
    fake_nvml()
    assert invoke("record", "--gpu", "1", "--", "sh", "-c", script)[0] == code


def test_record_of_no_such_command(fake_nvml: Tell) -> None:
    fake_nvml()
    code, output = invoke("record", "--", "no-such-command")
    assert code == 2
    assert "power record: no-such-command: No such file or directory" in output


def test_record_refuses_what_it_could_not_write(fake_nvml: Tell, tmp_path: Path) -> None:
    fake_nvml()
    code, output = invoke("record", "--trace", tmp_path / "out.xlsx", "--", *SLEEP)
    assert code == 2
    assert '".xlsx" is not one of .csv, .npz' in output


@pytest.mark.parametrize("option", ["--json", "--trace", "--plot"])
def test_record_refuses_a_file_it_could_not_write_before_it_runs(fake_nvml: Tell, tmp_path: Path, option: str) -> None:
    """A folder that is not there; nothing is left by the check of those that could be written."""
    fake_nvml()
    endings = {"--json": ".json", "--trace": ".csv", "--plot": ".html"}
    ran, absent = tmp_path / "ran", tmp_path / "absent" / f"out{endings[option]}"
    fine = {other: tmp_path / f"fine{ending}" for other, ending in endings.items() if other != option}
    others = [part for pair in fine.items() for part in pair]
    code, output = invoke("record", *others, option, absent, "--", "touch", ran)
    assert code == 2
    assert (
        f"{option} {absent}: cannot be written: No such file or directory; make its folder first; nothing was run"
        in output.replace("\n", "")
    )
    assert not ran.exists()
    assert not any(path.exists() for path in fine.values())


def test_a_lost_gpu_is_left_out_and_told(fake_nvml: Tell) -> None:
    fake_nvml(fail="nvmlDeviceGetUUID:15:1")
    code, output = invoke("record", "--", "true")
    assert code == 0
    assert "pybench: GPU 1 can't be queried: GPU is lost; left out" in output
    code, output = invoke("record", "--gpu", "1", "--", "true")
    assert code == 2
    assert "--gpu 1: no such GPU; there are 0; GPU 1 can't be queried: GPU is lost" in output


@pytest.mark.parametrize("arguments", [("record", "--", "true"), ("probe",), ("watch",), ("calibrate",)])
def test_no_driver_is_said_before_anything_runs(monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/no/such/libnvidia-ml.so.1")
    code, output = invoke(*arguments)
    assert code == 3
    reason = "no NVIDIA driver: /no/such/libnvidia-ml.so.1 not found"
    assert output == f"pybench: no power to measure: {reason}; see pybench doctor\n"
    assert sampler_unavailable_reason() == reason


def test_a_gpu_that_is_not_there(fake_nvml: Tell) -> None:
    fake_nvml()
    code, output = invoke("watch", "--gpu", "5")
    assert code == 2
    assert "--gpu 5: no such GPU; there are 0, 1" in output


def test_probe_tells_periods_costs_and_scopes(fake_nvml: Tell, tmp_path: Path) -> None:
    fake_nvml(load="square:120:680:130", sensor="h200", devices=1)
    code, output = invoke("probe", "--json", tmp_path / "probe.json")
    assert code == 0
    assert "energy counter   every " in output
    (gpu,) = json.loads((tmp_path / "probe.json").read_text())
    assert gpu["counter_period_s"] == pytest.approx(0.1, rel=0.01)
    assert gpu["series_period_s"] == pytest.approx(0.02, rel=0.1)
    assert gpu["series_depth"] == pytest.approx(120, abs=3)
    assert {"counter", "series", "instant", "average", "memory"} <= set(gpu["capabilities"])
    assert [call["error"] for call in gpu["calls"]] == [None] * 4


def test_watch_prints_watts(fake_nvml: Tell) -> None:
    fake_nvml(load="constant:400")
    code, output = invoke("watch", "--count", "2", "--interval", "0.2")
    assert code == 0
    assert output.count("400.0 W") >= 2


@pytest.mark.parametrize("value", ["nan", "inf", "0"])
def test_record_refuses_a_period_that_is_none(fake_nvml: Tell, value: str) -> None:
    fake_nvml()
    assert invoke("record", "--period-ms", value, "--", "true")[0] == 2


def test_a_gpu_named_twice_counts_once(fake_nvml: Tell, tmp_path: Path) -> None:
    fake_nvml()
    assert invoke("record", "--gpu", "1", "--gpu", "1", "--json", tmp_path / "out.json", "--", "true")[0] == 0
    assert [gpu["index"] for gpu in json.loads((tmp_path / "out.json").read_text())["gpus"]] == [1]


def test_a_pipe_without_a_reader_is_refused(fake_nvml: Tell, tmp_path: Path) -> None:
    fake_nvml()
    os.mkfifo(tmp_path / "pipe.json")
    code, output = invoke("record", "--json", tmp_path / "pipe.json", "--", "true")
    assert code == 2
    assert "cannot be written" in output


@contextmanager
def reader_of(pipe: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has a new pipe open and prints what is written until its first writer closes it."""
    os.mkfifo(pipe)
    with subprocess.Popen((sys.executable, "-c", READER, str(pipe)), stdout=subprocess.PIPE) as reader:
        try:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"open\n"
            yield reader
        finally:
            reader.kill()


def until_over(process: subprocess.Popen[bytes]) -> str:
    """A shell's wait until a process has closed its files; this one waits for it later."""
    return f"until grep -q '^State:.Z' /proc/{process.pid}/status; do sleep 0.02; done"


def test_a_pipe_keeps_its_reader(fake_nvml: Tell, tmp_path: Path) -> None:
    """The check before the command does not end what waits at the other end."""
    fake_nvml()
    with reader_of(tmp_path / "pipe.json") as reader:
        assert invoke("record", "--json", tmp_path / "pipe.json", "--", "sleep", "0.2")[0] == 0
        assert reader.stdout is not None
        assert json.loads(reader.stdout.read())["exit_code"] == 0


def test_a_pipe_whose_reader_goes_is_not_waited_for(fake_nvml: Tell, tmp_path: Path) -> None:
    """The joules are printed, and the command's own exit code stays."""
    fake_nvml()
    pipe = tmp_path / "pipe.json"
    with reader_of(pipe) as reader:
        script = f"kill {reader.pid}; {until_over(reader)}; exit 7"
        code, output = invoke("record", "--json", pipe, "--", "sh", "-c", script)
    assert code == 7
    assert "scope: gpu_board" in output
    assert "cannot be written" in output


def test_a_link_that_leads_nowhere_stays_a_link(fake_nvml: Tell, tmp_path: Path) -> None:
    """The file is made where it leads to."""
    fake_nvml()
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    assert invoke("record", "--json", tmp_path / "link.json", "--", "true")[0] == 0
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["exit_code"] == 0


def test_a_file_is_replaced_only_when_whole(fake_nvml: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk failure during writing leaves the old file, and no other."""
    fake_nvml()
    (tmp_path / "out.json").write_text("before")

    def fail(_file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    code, output = invoke("record", "--json", tmp_path / "out.json", "--", "true")
    assert code != 0
    assert "scope: gpu_board" in output
    assert (tmp_path / "out.json").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_file_lost_meanwhile_costs_no_joules(fake_nvml: Tell, tmp_path: Path) -> None:
    """The command removes the folder: the joules are printed, its own exit code stays, the other file is whole."""
    fake_nvml()
    folder = tmp_path / "folder"
    folder.mkdir()
    options = ("--json", folder / "out.json", "--trace", tmp_path / "out.csv")
    code, output = invoke("record", *options, "--", "sh", "-c", f"rmdir {folder}; exit 7")
    assert code == 7
    assert "scope: gpu_board" in output
    assert "out.json: cannot be written" in output.replace("\n", "")
    times_ns = [int(line.split(",")[0]) for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert times_ns == sorted(times_ns)
    assert len(times_ns) > 10


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_is_the_commands_and_joules_are_printed(fake_nvml: Tell, number: signal.Signals) -> None:
    code, errors = recorded_with(fake_nvml, number, signal.SIG_DFL, "echo begun; exec sleep 30")
    assert code == 128 + number
    assert "scope: gpu_board" in errors


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_stays_ignored(fake_nvml: Tell, number: signal.Signals) -> None:
    """The command ignores them too: nohup ignores SIGHUP, a shell ignores SIGINT for background jobs."""
    code, errors = recorded_with(fake_nvml, number, signal.SIG_IGN, "echo begun; read word; exit 7")
    assert code == 7
    assert "scope: gpu_board" in errors


def recorded_with(fake_nvml: Tell, number: signal.Signals, before: signal.Handlers, script: str) -> tuple[int, str]:
    """Exit code and standard error of a recording of the script that gets the signal, then a line, once it has begun.

    ``before`` is what the signal does as the recording is started.
    """
    fake_nvml(devices=1)
    start = f"import signal; signal.signal({number:d}, signal.{before.name}); from pybench.cli.main import main; main()"
    command = (sys.executable, "-c", start, "power", "record", "--", "sh", "-c", script)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as recording:
        assert recording.stdout is not None
        assert recording.stdout.readline() == "begun\n"
        recording.send_signal(number)
        _, errors = recording.communicate("go on\n", timeout=100)
    return recording.returncode, errors


def test_record_draws_a_page(fake_nvml: Tell, tmp_path: Path) -> None:
    """It has the command, its joules and the readings; another suffix is refused before the command begins."""
    fake_nvml(devices=2, load="constant:400")
    assert invoke("record", "--plot", tmp_path / "out.html", "--", *SLEEP)[0] == 0
    page = (tmp_path / "out.html").read_text()
    assert "time.sleep(0.4)" in page
    assert 'id="power-data"' in page
    assert "GPU-00000001-fake-4000-8000-000000000001" in page
    picture = tmp_path / "out.svg"
    code, output = invoke("record", "--plot", picture, "--", "touch", tmp_path / "ran")
    assert (code, f'--plot {picture}: ".svg" is not .html' in output, (tmp_path / "ran").exists()) == (2, True, False)


def test_a_full_standard_error_does_not_change_the_exit_code(fake_nvml: Tell) -> None:
    """The joules are lost, the command's own outcome is not."""
    fake_nvml(devices=1)
    pybench = [sys.executable, "-c", "from pybench.cli.main import main; main()"]
    command = [*pybench, "power", "record", "--", sys.executable, "-c", "exit(7)"]
    with Path("/dev/full").open("w") as full:
        assert subprocess.run(command, stderr=full, check=False, timeout=60).returncode == 7


def test_two_results_in_one_file(fake_nvml: Tell, tmp_path: Path) -> None:
    """One would be lost; a device such as ``/dev/null`` may have both."""
    fake_nvml()
    file = tmp_path / "x.csv"
    code, output = invoke("record", "--json", file, "--trace", file, "--", "true")
    assert code == 2
    assert "--json writes this file, too; name another" in output
    assert not file.exists()
