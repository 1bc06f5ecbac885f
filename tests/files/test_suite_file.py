"""Suite files: values that are read, and every way to get one wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybench.files.suite.file import read_suite
from pybench.files.suite.schema import suite_schema
from pybench.model.errors import FileError, ProblemKind
from pybench.model.suite import Suite, TableFigure
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("files.suite_file")
SUITES = Path(__file__).parents[2] / "suites"
HEAD = 'schema = 1\nname = "s"\n'
BENCH = '[[benchmark]]\nname = "b"\nworkload = "generate"\nbackend = "torch"\nmodel = "llama-tiny"\n'
SIZES = "batch_size = 2\nprompt_tokens = 4\noutput_tokens = 4\n"
GOOD = HEAD + BENCH + SIZES
TRAIN = (
    HEAD
    + '[[benchmark]]\nname = "t"\nworkload = "train"\nbackend = "torch"\nmodel = "llama-tiny"\nsequence_tokens = 4\n'
)
MATMUL = HEAD + '[[benchmark]]\nname = "m"\nworkload = "matmul"\nbackend = "torch"\n'
EXPECT = '[[benchmark.expect]]\nmetric = "step_s"\n'
SCALING = EXPECT + 'scaling = "strong"\nalong = "tensor_parallel"\ntable = "t"\n'
AXIS = "[benchmark.axes]\ntensor_parallel = [1, 2]\n"
SWEPT = GOOD + "[benchmark.axes]\n"


@pytest.fixture(scope="module")
def suite_validator() -> jsonschema.Draft202012Validator:
    """A validator of suite files, whose schema is valid."""
    schema = suite_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize(
    ("right", "wrong", "place"),
    [
        ("batch_size", "batch_siz", "benchmark/0/batch_siz"),
        ('"generate"', '"generat"', "benchmark/0/workload"),
        ("batch_size = 2", 'batch_size = "2"', "benchmark/0/batch_size"),
        ("prompt_tokens = 4", "prompt_tokens = 0", "benchmark/0/prompt_tokens"),
        ("tensor_parallel = [", "tensor_paralel = [", "benchmark/0/axes/tensor_paralel"),
        ("scaling", "scalling", "benchmark/0/expect/0/scalling"),
    ],
)
def test_an_editor_marks_one_place_for_a_slip(
    suite_validator: jsonschema.Draft202012Validator, right: str, wrong: str, place: str
) -> None:
    """The key itself, not its table, and by its own workload's rules alone."""
    text = GOOD + SCALING + AXIS
    assert right in text
    errors = suite_validator.iter_errors(tomllib.loads(text.replace(right, wrong, 1)))
    assert ["/".join(map(str, error.absolute_path)) for error in errors] == [place]


def _read(folder: Path, text: str | bytes, profile: str | None = None, kind: str = "cpu") -> Suite:
    path = folder / "s.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_suite(path, profile=profile, machine_kind=kind)


MALFORMED: dict[str, tuple[str | bytes, tuple[ProblemKind, *tuple[str, ...]]]] = {
    "empty": ("", ("unreadable", "empty; a suite begins with")),
    "blank": (" \n\t\n", ("unreadable", "empty; a suite begins with")),
    "two_bytes": (GOOD.encode("utf-16"), ("unreadable", "UTF-16", "UTF-8")),
    "not_utf8": (b'schema = 1\nname = "\xff"', ("unreadable", ":2: not UTF-8")),
    "syntax": ("schema = 1\nname = \n", ("syntax", ":2: not valid TOML")),
    "duplicate_key": (HEAD + 'name = "t"\n', ("syntax", ":3: not valid TOML")),
    "duplicate_table": (GOOD + "[profile.a]\n[profile.a]\n", ("syntax", "not valid TOML")),
    "deep_table": (GOOD + "engine_args = " + "{a = " * 16 + "1" + "}" * 16, ("syntax", "nested too deeply")),
    "long_key": ("a" + ".a" * 50_000 + " = 1", ("syntax", ":1: 50000 dots", "128")),
    "many_digits": ("a = " + "9" * 5000, ("syntax", "not valid TOML")),
    "lone_surrogate": ('name = "\\ud800"', ("syntax", "not valid TOML")),
    "huge_hex": (GOOD.replace("= 2", "= 0x" + "f" * 9000), ("schema", "an enormous integer", "at most")),
    "no_batch_to_round": (
        TRAIN + "batch_size_per_gpu = 2\nround_up_batch = true\n",
        ("rule", ':10: [[benchmark]] "t" -> round_up_batch: ', "global_batch_size"),
    ),
    "batch_of_products": (MATMUL + "round_up_batch = true\n", ("schema", "round_up_batch: unknown key")),
    "weak_scaling_of_shared_work": (
        GOOD + AXIS + EXPECT + 'scaling = "weak"\nalong = "tensor_parallel"\n',
        ("rule", "scaling: batch_size", "take 'strong'"),
    ),
    "claim_alone": (GOOD + EXPECT + 'maximum = 1.0\nclaim = "a guide"\n', ("rule", "claim: ", "below or above")),
    "claim_of_two": (
        GOOD + EXPECT + 'below = "c"\nwidening_along = "batch_size"\nfactor = 2\nclaim = "a paper"\n',
        ("rule", "factor: ", "widening_along"),
    ),
    "variables": (GOOD + 'environment = "NCCL_ALGO"', ("schema", "environment: ", "'NCCL_ALGO'", "NAME=VALUE")),
    "variable_of_an_axis": (
        SWEPT + 'environment = ["", "PATH=x"]',
        ("schema", "environment[1]: found 'PATH=x'", "NCCL_"),
    ),
    "variable_twice": (GOOD + 'environment = "NCCL_ALGO=Ring NCCL_ALGO=Tree"', ("schema", "NCCL_ALGO is set twice")),
    "variable_of_ours": (GOOD + 'environment = "CUDA_VISIBLE_DEVICES=0"', ("schema", "CUDA_VISIBLE_DEVICES is set")),
    "variable_of_a_credential": (GOOD + 'environment = "HF_TOKEN=t"', ("schema", "HF_TOKEN", "[container]")),
    "variable_with_a_password": (GOOD + 'environment = "NCCL_X=http://me:pw@x"', ("schema", "NCCL_X", "[container]")),
    "variable_of_a_path": (GOOD + 'environment = "NCCL_TOPO_FILE=/x"', ("schema", "NCCL_TOPO_FILE is a path")),
    "variable_of_the_container": (
        GOOD + 'environment = "NCCL_ALGO=Ring"\n[container]\nenvironment = {NCCL_ALGO = "Tree"}',
        ("rule", "environment: NCCL_ALGO", "[container]"),
    ),
    "job_elsewhere": (GOOD + "[benchmark.job]\nsamples = 5\n", ("schema", "job: unknown key")),
    "job_without_samples": (TRAIN + "[benchmark.job]\nepochs = 5\n", ("schema", "job.samples: missing")),
    "job_of_nothing": (TRAIN + "[benchmark.job]\nsamples = 0\n", ("schema", "job.samples: found 0", "at least 1")),
    "job_with_more": (TRAIN + "[benchmark.job]\nsamples = 5\nsteps = 5\n", ("schema", "job.steps: unknown key")),
    "no_schema": (GOOD.replace("schema = 1", ""), ("schema", "schema: missing")),
    "schema_2": (GOOD.replace("schema = 1", "schema = 2"), ("schema", ":1: schema: found 2", "at most 1")),
    "schema_true": (GOOD.replace("schema = 1", "schema = true"), ("schema", "schema: found true", "an integer")),
    "no_name": (GOOD.replace('name = "s"', ""), ("schema", "name: missing")),
    "no_benchmark": (HEAD, ("schema", "benchmark: missing")),
    "benchmark_empty": (HEAD + "benchmark = []", ("schema", "benchmark: empty")),
    "benchmark_table": (HEAD + "[benchmark]\n", ("schema", "benchmark: found a table", "an array")),
    "benchmark_numbers": (HEAD + "benchmark = [1]", ("schema", "benchmark[0]")),
    "unknown_top": (GOOD.replace("[[", "descripton = 'x'\n[[", 1), ("schema", "descripton: unknown", "'description'")),
    "unknown_key": (GOOD + "batch_siz = 3", ("schema", '"b" -> batch_siz: unknown key', "'batch_size'")),
    "no_workload": (GOOD.replace('workload = "generate"', ""), ("schema", "workload is missing")),
    "workload": (GOOD.replace('"generate"', '"generat"'), ("schema", "found 'generat', valid: 'generate', 'train'")),
    "model": (GOOD.replace("llama-tiny", "llama-tyni"), ("schema", "did you mean 'llama-tiny'?")),
    "backend": (GOOD.replace('"torch"', '"torhc"'), ("schema", "did you mean 'torch'?")),
    "bool_size": (GOOD.replace("= 2", "= true"), ("schema", "batch_size: found true", "an integer")),
    "float_size": (GOOD.replace("= 2", "= 2.0"), ("schema", "batch_size: found 2.0", "an integer")),
    "date_size": (GOOD.replace("= 2", "= 2024-01-01"), ("schema", "found the date or time 2024-01-01", "an integer")),
    "list_size": (GOOD.replace("= 2", "= [2]"), ("schema", "found an array of 1 value", "an integer")),
    "table_size": (GOOD.replace("= 2", "= {a = 1}"), ("schema", "found a table", "an integer")),
    "negative": (GOOD.replace("= 2", "= -2"), ("schema", "found -2", "at least 1")),
    "too_large": (GOOD.replace("= 2", "= 99999999"), ("schema", "found 99999999", "at most 1048576")),
    "nan": (GOOD + "time_limit_s = nan", ("schema", "time_limit_s: found nan")),
    "inf": (GOOD + "time_limit_s = inf", ("schema", "time_limit_s: found inf")),
    "missing_field": (HEAD + BENCH + "batch_size = 2\noutput_tokens = 4", ("rule", '"b" -> prompt_tokens: missing')),
    "path_name": (GOOD.replace('"b"', '"../x"'), ("schema", "found '../x'; a name is")),
    "shell_name": (GOOD.replace('"b"', '"$(x)"'), ("schema", "found '$(x)'; a name is")),
    "newline_name": (GOOD.replace('"b"', '"a\\n"'), ("schema", "found 'a\\n'; a name is")),
    "unicode_name": (GOOD.replace('"b"', '"décode"'), ("schema", "found 'décode'; a name is")),
    "long_name": (GOOD.replace('"b"', f'"{"b" * 65}"'), ("schema", "a name is 1 to 64")),
    "no_length_name": (GOOD.replace('"b"', '""'), ("schema", "found ''; a name is")),
    "escape_text": (GOOD.replace("[[", 'description = "\\u001b[2J"\n[[', 1), ("schema", ": found '\\x1b[2J'")),
    "same_name": (GOOD + (BENCH + SIZES).replace('"b"', '"B"'), ("rule", '"B" -> name: ')),
    "axis_empty": (SWEPT + "seed = []", ("schema", "axes.seed: empty")),
    "axis_scalar": (SWEPT + "seed = 1", ("schema", "axes.seed: found 1, expected an array")),
    "axis_value": (SWEPT + 'tensor_parallel = [1, "2"]', ("schema", "axes.tensor_parallel[1]: found '2'")),
    "axis_twice": (SWEPT + "seed = [1, 1]", ("schema", "1 appears twice")),
    "all_of_another_axis": (
        SWEPT + 'seed = ["all"]',
        ("schema", "axes.seed[0]: found 'all'", "an integer", "axes.gpus"),
    ),
    "all_of_no_axis": (GOOD + 'tensor_parallel = "all"', ("schema", "tensor_parallel: found 'all'", "axes.gpus")),
    "rest_twice": (
        GOOD + 'tensor_parallel = "rest"\ndata_parallel = "rest"',
        ("rule", "tensor_parallel: 'rest'", "data_parallel has no number"),
    ),
    "rest_and_all": (
        GOOD + 'data_parallel = "rest"\n[benchmark.axes]\ntensor_parallel = ["all"]',
        ("rule", "data_parallel: 'rest'", "tensor_parallel has no number"),
    ),
    "rest_in_an_axis": (SWEPT + 'tensor_parallel = ["rest"]', ("schema", "'rest' in one such setting")),
    "rest_of_what_grows": (
        GOOD + 'data_parallel = "rest"\n[benchmark.axes]\ntensor_parallel = [1, 2]\n' + SCALING,
        ("rule", "along: ", "data_parallel = 'rest'"),
    ),
    "all_beside_several": (
        SWEPT + 'tensor_parallel = ["all"]\ndata_parallel = [1, 2]',
        ("rule", "axes.tensor_parallel: 'all'", "give data_parallel one number"),
    ),
    "all_twice": (
        SWEPT + 'tensor_parallel = ["all"]\ndata_parallel = ["all"]',
        ("rule", "give data_parallel one number"),
    ),
    "all_and_auto": (TRAIN + 'grad_accum = "all"', ("schema", "grad_accum: found 'all'", "a number or 'auto'")),
    "word_of_gpus": (
        MATMUL + '[benchmark.axes]\ngpus = ["al"]',
        ("schema", "gpus[0]: found 'al'", "a number or 'all'"),
    ),
    "no_gpus": (MATMUL + '[benchmark.axes]\ngpus = ["all", 0]', ("schema", "axes.gpus[1]: found 0", "at least 1")),
    "all_fixed": (MATMUL + 'gpus = "all"', ("schema", "gpus: found 'all'", "a number or 'rest'", "axes.gpus")),
    "axis_long": (SWEPT + f"seed = {list(range(65))}", ("schema", "65 values", "at most 64")),
    "axis_unknown": (SWEPT + "tensor_paralel = [1]", ("schema", "did you mean 'tensor_parallel'?")),
    "axis_effort": (SWEPT + "steps = [1]", ("schema", "axes.steps: unknown key")),
    "points": (
        GOOD
        + "".join(
            [
                "[benchmark.axes]\n",
                *(f"{key} = {list(range(1, 18))}\n" for key in ("seed", "tensor_parallel", "data_parallel")),
            ]
        ),
        ("rule", "axes: ", "4913 points", "4096"),
    ),
    "attempts": (GOOD + "attempts = 4\nmax_attempts = 2", ("rule", "max_attempts: 2 ", "attempts = 4")),
    "no_batch": (TRAIN, ("rule", "global_batch_size", "batch_size_per_gpu")),
    "two_batches": (TRAIN + "global_batch_size = 2\nbatch_size_per_gpu = 2", ("rule", "global_batch_size")),
    "metric": (GOOD + EXPECT.replace("step_s", "steps_s"), ("schema", "did you mean 'step_s'?")),
    "metric_of_train": (GOOD + EXPECT.replace("step_s", "samples_per_s"), ("schema", "found 'samples_per_s', valid:")),
    "expect_nothing": (GOOD + EXPECT, ("rule", "expect[0]: ", "scaling, along")),
    "expect_mix": (GOOD + AXIS + SCALING + "minimum = 1", ("rule", "expect[0]: ", "not a mix")),
    "expect_limits": (GOOD + EXPECT + "minimum = 2\nmaximum = 1", ("rule", "2 is above", "maximum = 1")),
    "table_alone_with_factor": (
        GOOD + EXPECT + 'table = "t"\nfactor = 2\n',
        ("rule", "[0].factor: ", "below or above"),
    ),
    "along_no_axis": (GOOD + SCALING, ("rule", "along: tensor_parallel is no axis")),
    "along_word": (GOOD + AXIS + SCALING.replace('"tensor_parallel"', '"seed"'), ("schema", "along: found 'seed'")),
    "baseline": (GOOD + AXIS + SCALING + "baseline = 4", ("rule", "baseline: 4 ", "tensor_parallel: [1, 2]")),
    "train_strong": (
        TRAIN + "batch_size_per_gpu = 2\n[benchmark.axes]\ndata_parallel = [1]\n" + SCALING.replace("tensor", "data"),
        ("rule", "scaling: strong", "needs global_batch_size"),
    ),
    "engine_args_date": (
        GOOD + "[benchmark.engine_args]\nblock_size = [1, {a = 2026-01-01}]",
        ("schema", "engine_args: found a table", "'block_size'"),
    ),
    "engine_args_axis": (SWEPT + "engine_args = [{a = 1}]", ("schema", "axes.engine_args: unknown key")),
    "two_arrivals": (
        GOOD + "concurrency = 1\n[benchmark.axes]\nrequest_rate_per_s = [1, 2.5]",
        ("rule", '"b": ', "concurrency", "request_rate_per_s"),
    ),
    "order_unknown": (GOOD + EXPECT + 'below = "c"\n', ("rule", "below: found 'c'", "valid: none")),
    "order_itself": (GOOD + EXPECT + 'above = "b"\n', ("rule", "above: found 'b'")),
    "order_metric": (
        GOOD + '[[benchmark.expect]]\nmetric = "ttft_s"\nbelow = "t"\n' + TRAIN.partition("\n[[")[2].join(("[[", "")),
        ("rule", "below: 't'", "ttft_s"),
    ),
    "widening_alone": (
        GOOD + EXPECT + 'minimum = 1\nwidening_along = "batch_size"\n',
        ("rule", "widening_along: ", "below or above"),
    ),
    "widening_nowhere": (GOOD + EXPECT + 'below = "c"\nwidening_along = "nowhere"\n', ("rule", "along: nowhere ")),
    "widening_along_degree": (
        GOOD + AXIS + EXPECT + 'below = "c"\nwidening_along = "tensor_parallel"\n',
        ("rule", "widening_along: tensor_parallel is no load"),
    ),
    "widening_along_gpus": (
        MATMUL + "[benchmark.axes]\ngpus = [1, 2]\n" + EXPECT + 'below = "c"\nwidening_along = "gpus"\n',
        ("rule", "widening_along: gpus is no load"),
    ),
    "widening_elsewhere": (
        GOOD.replace("batch_size = 2\n", "")
        + "[benchmark.axes]\nbatch_size = [1, 2]\n"
        + EXPECT
        + 'below = "c"\nwidening_along = "batch_size"\n'
        + (BENCH + SIZES).replace('name = "b"', 'name = "c"'),
        ("rule", "below: 'c' has no axis batch_size"),
    ),
    "widening_words": (
        GOOD
        + '[benchmark.axes]\ndtype = ["float32", "bfloat16"]\n'
        + EXPECT
        + 'below = "c"\nwidening_along = "dtype"\n',
        ("rule", "widening_along: dtype is no load"),
    ),
    "order_and_limit": (GOOD + EXPECT + 'below = "c"\nminimum = 1\n', ("rule", "expect[0]: ", "not a mix")),
    "profile_field": (GOOD + "[profile.a]\nsequence_tokens = 2", ("rule", "-> sequence_tokens: no benchmark")),
    "profile_type": (GOOD + '[profile.a]\nbatch_size = "2"', ("schema", "[profile.a] -> batch_size: found '2'")),
    "profile_axis": (GOOD + "[profile.a.axes]\nseed = [1]", ("rule", "axes.seed: ", "no benchmark here")),
    "profile_bench": (GOOD + "[profile.a.benchmark.c]\n", ("rule", "[profile.a.benchmark.c]: no such benchmark")),
    "profile_omits_all": (GOOD + "[profile.a.benchmark.b]\nomit = true", ("rule", "[profile.a] -> benchmark: omits")),
    "profile_name": (GOOD + '[profile."a/b"]\n', ("schema", "a name is")),
    "profile_fixes_axis": (
        GOOD + AXIS + "[profile.a]\ntensor_parallel = 2",
        ("rule", "tensor_parallel: ", "profile a"),
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(tmp_path: Path, name: str) -> None:
    """Each slip is one problem of its kind, with its place, the value found and valid values."""
    text, (kind, *facts) = MALFORMED[name]
    with pytest.raises(FileError) as caught:
        _read(tmp_path, text)
    assert [found.kind for found in caught.value.problems if all(fact in str(found) for fact in facts)] == [kind]


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    """Some editors write one."""
    path = tmp_path / "s.toml"
    path.write_text(GOOD, encoding="utf-8-sig")
    assert read_suite(path, profile=None, machine_kind="cpu").name == "s"


def test_all_problems_at_once(tmp_path: Path) -> None:
    """Independent problems come together, each with its line."""
    text = HEAD + BENCH + 'batch_size = 0\nprompt_tokens = "4"\n[benchmark.axes]\nsed = [1]\n'
    with pytest.raises(FileError) as caught:
        _read(tmp_path, text)
    assert [problem.line for problem in caught.value.problems] == [8, 9, 11]


@pytest.mark.parametrize(
    ("kind", "sentence", "text"),
    [
        ("unreadable", SENTENCES["unreadable"], "\0"),
        ("syntax", SENTENCES["syntax"], "a = " + "[" * 5000),
        ("schema", SENTENCES["schema"], GOOD.replace("= 2", '= "8"')),
        ("rule", SENTENCES["rule"], GOOD + "[benchmark.axes]\nbatch_size = [1]"),
        ("more", SENTENCES["more"], GOOD + "".join(f"x{i} = 1\n" for i in range(200))),
    ],
)
def test_each_kind_has_its_sentence(tmp_path: Path, kind: str, sentence: str, text: str) -> None:
    """A flood of problems ends with a word that more follow."""
    with pytest.raises(FileError) as caught:
        _read(tmp_path, text)
    assert (caught.value.problems[-1].kind, caught.value.problems[-1].message) == (kind, sentence)


def test_huge_file(tmp_path: Path) -> None:
    """A 100 MB file is refused by its size."""
    path = tmp_path / "s.toml"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(FileError, match="100000000 bytes; a suite has at most 1048576"):
        read_suite(path, profile=None, machine_kind="cpu")


def test_folder_and_missing_file(tmp_path: Path) -> None:
    """A folder is refused; a missing file names its neighbours."""
    with pytest.raises(FileError, match="not a regular file"):
        read_suite(tmp_path, profile=None, machine_kind="cpu")
    with pytest.raises(FileError, match=r"no such file; did you mean 'tp_scaling\.toml'"):
        read_suite(SUITES / "tp_scalin.toml", profile=None, machine_kind="cpu")


PROFILES = (
    GOOD
    + AXIS
    + (
        "[profile.cpu]\nbatch_size = 8\n[profile.cpu.axes]\ntensor_parallel = [4]\n"
        "[profile.cpu.benchmark.b]\nbatch_size = 16\nattempts = 9\n[profile.h200]\nprompt_tokens = 7\n"
    )
)


def test_profile_of_the_machine(tmp_path: Path) -> None:
    """The profile named like the machine applies; the benchmark's own part wins; attempts raise their ceiling."""
    suite = _read(tmp_path, PROFILES)
    (benchmark,) = suite.benchmarks
    assert suite.profile == "cpu"
    assert benchmark.settings["batch_size"] == 16
    assert benchmark.axes == {"tensor_parallel": (4,)}
    assert (benchmark.effort.attempts, benchmark.effort.max_attempts) == (9, 9)


def test_all_gpus_in_an_axis_and_in_a_profile(suite_validator: jsonschema.Draft202012Validator, tmp_path: Path) -> None:
    """The word stays a word until the machine is known; the JSON Schema knows it, too."""
    text = MATMUL + '[benchmark.axes]\ngpus = [2, "all"]\n[profile.cpu.axes]\ngpus = ["all"]\n[profile.h200]\n'
    assert _read(tmp_path, text).benchmarks[0].axes == {"gpus": ("all",)}
    assert _read(tmp_path, text, profile="h200").benchmarks[0].axes == {"gpus": (2, "all")}
    suite_validator.validate(tomllib.loads(text))
    with pytest.raises(jsonschema.ValidationError):
        suite_validator.validate(tomllib.loads(text.replace('"all"', '"al"')))


def test_a_profile_may_leave_a_benchmark_out(tmp_path: Path) -> None:
    """Its machines can't run it; others still do."""
    text = GOOD + (BENCH + SIZES).replace('"b"', '"c"') + "[profile.cpu.benchmark.c]\nomit = true\n[profile.h200]\n"
    on_cpu, on_gpu = _read(tmp_path, text), _read(tmp_path, text, profile="h200")
    assert ([benchmark.name for benchmark in on_cpu.benchmarks], on_cpu.omitted) == (["b"], ("c",))
    assert ([benchmark.name for benchmark in on_gpu.benchmarks], on_gpu.omitted) == (["b", "c"], ())


def test_explicit_profile_and_none(tmp_path: Path) -> None:
    """An explicit profile wins, an unknown one is refused with those that exist, an unknown machine gets none."""
    assert _read(tmp_path, PROFILES, profile="h200").benchmarks[0].settings["prompt_tokens"] == 7
    assert _read(tmp_path, PROFILES, kind="l4").profile is None
    with pytest.raises(FileError, match=r"no profile 'h20'; did you mean 'h200'\?; valid: cpu, h200"):
        _read(tmp_path, PROFILES, profile="h20")


def test_engine_arguments_and_whole_rates(tmp_path: Path) -> None:
    """A table passes as it is; a rate without a fraction is a number with one all the same."""
    text = GOOD + "request_rate_per_s = 8\n[benchmark.engine_args]\nblock_size = 32\ncudagraph_capture_sizes = [1, 8]\n"
    (benchmark,) = _read(tmp_path, text).benchmarks
    assert benchmark.settings["engine_args"] == {"block_size": 32, "cudagraph_capture_sizes": [1, 8]}
    assert repr(benchmark.settings["request_rate_per_s"]) == "8.0"


def test_whole_numbers_of_effort(tmp_path: Path) -> None:
    """A number with a fraction may be written without: read back from a manifest, the point has the same digest."""
    effort = (
        _read(tmp_path, GOOD + "dither_ms = 20\ncollective_timeout_s = 5\ntime_limit_s = 60\n").benchmarks[0].effort
    )
    numbers = (effort.dither_ms, effort.collective_timeout_s, effort.time_limit_s)
    assert repr(numbers) == "(20.0, 5.0, 60.0)"


@settings(max_examples=50, deadline=None)  # an example may meet a machine that stands still
@given(st.text() | st.text(alphabet='[]{}="ab.1\n') | st.text(alphabet='[]=".1\n').map(lambda text: GOOD + text))
def test_any_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Whatever the text, only ``FileError`` comes out."""
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(text.encode("utf-8", "replace"))
    try:
        read_suite(path, profile=None, machine_kind="cpu")
    except FileError as error:
        assert error.problems  # noqa: PT017 - success is fine too


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_suites(suite_validator: jsonschema.Draft202012Validator, path: Path) -> None:
    """Shipped suites read under each profile and match the JSON Schema."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    suite_validator.validate(document)
    for profile in document["profile"]:
        assert read_suite(path, profile=profile, machine_kind="cpu").profile == profile


def test_a_table_alone_is_an_absolute_expectation(tmp_path: Path) -> None:
    """The figure itself is held against it; with limits of the suite's own it would be two."""
    expect = EXPECT + 'table = "t"\n'
    (expectation,) = _read(tmp_path, GOOD + expect).benchmarks[0].expectations
    assert expectation == TableFigure(metric="step_s", table="t")
    (of_one_gpu,) = _read(tmp_path, GOOD + expect + "gpus = 1\n").benchmarks[0].expectations
    assert of_one_gpu == TableFigure(metric="step_s", table="t", gpus=1)
    places = {EXPECT + "minimum = 1\ngpus = 1\n": "expect[0].gpus"}
    for added, place in {
        **places,
        expect + "minimum = 1\n": "expect[0]",
        expect + "baseline = 2\n": "expect[0]",
    }.items():
        with pytest.raises(FileError) as caught:
            _read(tmp_path, GOOD + added)
        assert [(found.kind, found.path) for found in caught.value.problems] == [
            ("rule", f'[[benchmark]] "b" -> {place}')
        ]
