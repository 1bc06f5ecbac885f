"""``--set``: what it changes of a suite, and every way to get it wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybench.files.shipped import shipped_suites
from pybench.files.suite.file import read_suite
from pybench.model.errors import FileError, UsageError
from pybench.model.suite import Suite, TrainingJob

TEXT = """
schema = 1
name = "s"

[[benchmark]]
name = "decode"
workload = "generate"
backend = "torch"
model = "llama-tiny"
prompt_tokens = 4
output_tokens = 4
batch_size = 8
axes = { tensor_parallel = [1, 2, 4] }
expect = [{ metric = "output_tokens_per_s", scaling = "strong", along = "tensor_parallel", baseline = 1 }]

[[benchmark]]
name = "v1.train"
workload = "train"
backend = "torch"
model = "llama-tiny"
sequence_tokens = 4
batch_size_per_gpu = 2
axes = { data_parallel = [1, 2] }

[profile.cpu]
attempts = 2
batch_size = 2
[profile.cpu.benchmark.decode]
prompt_tokens = 3
[profile.cpu.benchmark.decode.axes]
tensor_parallel = [1, 2]
"""


def _read(folder: Path, *settings: str, kind: str = "h200") -> Suite:
    path = folder / "s.toml"
    path.write_text(TEXT)
    return read_suite(path, profile=None, machine_kind=kind, settings=settings)


def test_a_setting_changes_every_benchmark_that_has_it(tmp_path: Path) -> None:
    """Training has no batch_size; both have attempts."""
    decode, train = _read(tmp_path, "batch_size=1", "attempts=5").benchmarks
    assert decode.settings["batch_size"] == 1
    assert "batch_size" not in train.settings
    assert (decode.effort.attempts, train.effort.attempts) == (5, 5)


def test_a_setting_of_one_benchmark_leaves_the_others(tmp_path: Path) -> None:
    """Also where the benchmark's name has a dot."""
    decode, train = _read(tmp_path, "benchmark.v1.train.attempts=7").benchmarks
    assert (decode.effort.attempts, train.effort.attempts) == (3, 7)


def test_a_setting_stands_above_the_profile(tmp_path: Path) -> None:
    """The profile's own settings and axes of the benchmark, too; others stay the profile's."""
    decode, _ = _read(tmp_path, "prompt_tokens=9", "axes.tensor_parallel=[1]", kind="cpu").benchmarks
    assert (decode.settings["prompt_tokens"], decode.settings["batch_size"]) == (9, 2)
    assert decode.axes["tensor_parallel"] == (1,)
    assert decode.effort.attempts == 2


def test_a_setting_of_an_axis_fixes_it(tmp_path: Path) -> None:
    """The point keeps the id that it has in the whole suite, so that runs can be compared."""
    decode, _ = _read(tmp_path, "tensor_parallel=1").benchmarks
    assert decode.axes == {"tensor_parallel": (1,)}
    assert "tensor_parallel" not in decode.settings


def test_the_last_of_two_settings_counts(tmp_path: Path) -> None:
    """As with most options."""
    assert _read(tmp_path, "batch_size=1", "batch_size=4").benchmarks[0].settings["batch_size"] == 4


@pytest.mark.parametrize(
    ("setting", "value"),
    [("dtype=float32", "float32"), ('dtype="float32"', "float32"), (" dtype = float32 ", "float32")],
)
def test_a_word_needs_no_quotes(tmp_path: Path, setting: str, value: str) -> None:
    """A shell would remove them."""
    assert _read(tmp_path, setting).benchmarks[0].settings["dtype"] == value


def test_a_table_is_written_as_in_the_file(tmp_path: Path) -> None:
    """Arguments of an engine are a table."""
    assert _read(tmp_path, "benchmark.decode.engine_args={a = 1}").benchmarks[0].settings["engine_args"] == {"a": 1}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("batch_size", "--set batch_size: expected KEY=VALUE"),
        ("=1", "expected KEY=VALUE"),
        (
            "batchsize=1",
            "'batchsize' is no setting of any benchmark; did you mean 'batch_size'? `pybench schema` lists all",
        ),
        ("lr=1", "'lr' is no setting of any benchmark; valid are activation_checkpointing, "),
        ("batch_size=many", "--set batch_size=many: found 'many', expected an integer"),
        ("batch_size=0", "--set batch_size=0: found 0, must be at least 1"),
        ("batch_size=1.5", "found 1.5, expected an integer"),
        ("dtype=float23", "found 'float23', valid:"),
        ("dtype=float23", "did you mean 'float32'?"),
        ("batch_size=[1, 2]", "found an array of 2 values, expected an integer"),
        ("benchmark.decod.attempts=1", "no benchmark 'decod'; did you mean 'decode'?"),
        ("benchmark.decode=1", "decode is a benchmark; add one of its settings: benchmark.decode.attempts=5"),
        ("benchmark.decode.sequence_tokens=1", "'sequence_tokens' is no setting of benchmark decode"),
        ("axes.batch_size=[1]", "'batch_size' is no axis of any benchmark; valid are data_parallel, tensor_parallel"),
        ("axes.tensor_parallel=[]", "empty, needs at least one value"),
        ("tensor_parallel=2", '[[benchmark]] "decode" -> expect[0].baseline: 1 is no value of axis'),
        ("name=x", "'name' is no setting"),
        ("expect=[]", "'expect' is no setting"),
        ("profile.cpu.attempts=1", "'profile.cpu.attempts' is no setting"),
        ("batch_size=" + "9" * 5000, "expected an integer"),
        ("batch_size=" + "[" * 5000, "expected an integer"),
        ("batch_size=1\nattempts=2", "expected an integer"),
        ("concurrency=-1", "must be at least"),
    ],
)
def test_what_cannot_be_set_is_refused(tmp_path: Path, setting: str, message: str) -> None:
    """The text, its fault, and valid values."""
    with pytest.raises(UsageError) as caught:
        _read(tmp_path, setting)
    assert message in str(caught.value)
    assert str(caught.value).startswith("--set ")


def test_a_shipped_suite_that_breaks_a_rule_names_the_rule(tmp_path: Path) -> None:
    """Each setting is valid; together they are not."""
    with pytest.raises(UsageError, match="max_attempts: 2 is below attempts = 4"):
        _read(tmp_path, "attempts=4", "max_attempts=2")


def test_a_setting_for_all_names_the_way_to_set_it_for_one(tmp_path: Path) -> None:
    """Where another benchmark of the suite can't have it."""
    path = shipped_suites() / "finetune_guide.toml"
    alone = read_suite(path, profile=None, machine_kind="h200", settings=("benchmark.full.optimizer=adamw_8bit",))
    assert next(one for one in alone.benchmarks if one.name == "full").settings["optimizer"] == "adamw_8bit"
    with pytest.raises(UsageError, match=r"of one benchmark alone: --set benchmark\.NAME\.optimizer=adamw_8bit$"):
        read_suite(path, profile=None, machine_kind="h200", settings=("optimizer=adamw_8bit",))


JOB = """
[benchmark.job]
samples = 2686
epochs = 3

[profile.small.job]
epochs = 1
[profile.smallest.benchmark.learn.job]
samples = 100
[profile.other]
seed = 1
"""
LEARN = """
schema = 1
name = "s"

[[benchmark]]
name = "learn"
workload = "train"
backend = "torch"
model = "llama-tiny"
sequence_tokens = 4
batch_size_per_gpu = 2
"""


def _job(folder: Path, text: str, *settings: str, profile: str | None = None) -> TrainingJob | None:
    (folder / "s.toml").write_text(text)
    return read_suite(folder / "s.toml", profile=profile, machine_kind="h200", settings=settings).benchmarks[0].job


def test_a_job_is_changed_by_a_profile_or_the_command_line(tmp_path: Path) -> None:
    """In parts: other values stay; the command line overrides the profile."""
    text = LEARN + JOB
    assert _job(tmp_path, text) == TrainingJob(samples=2686, epochs=3)
    assert _job(tmp_path, text, profile="small") == TrainingJob(samples=2686, epochs=1)
    assert _job(tmp_path, text, profile="smallest") == TrainingJob(samples=100, epochs=3)
    assert _job(tmp_path, text, "job.samples=500", profile="small") == TrainingJob(samples=500, epochs=1)
    assert _job(tmp_path, text, "benchmark.learn.job.epochs=2", profile="small") == TrainingJob(samples=2686, epochs=2)
    alone = f"{LEARN}[profile.own.benchmark.learn.job]\nsamples = 7\n"
    assert (_job(tmp_path, alone), _job(tmp_path, alone, profile="own")) == (None, TrainingJob(samples=7))


def test_a_job_that_is_none_is_refused(tmp_path: Path) -> None:
    """Where no benchmark has one, and with values that no job has."""
    for table, values in (("profile.p", "job]\nsamples = 3"), ("profile.p.benchmark.learn", "job]\nepochs = 3")):
        with pytest.raises(FileError) as caught:
            _job(tmp_path, f"{LEARN}[{table}.{values}\n")
        assert [(found.kind, found.path) for found in caught.value.problems] == [("rule", f"[{table}] -> job")]
    with pytest.raises(UsageError, match=r"--set job.samples=3: 'job.samples' is no setting of any benchmark"):
        _job(tmp_path, LEARN, "job.samples=3")
    with pytest.raises(UsageError, match="found 0, must be at least 1"):
        _job(tmp_path, LEARN + JOB, "job.epochs=0")
