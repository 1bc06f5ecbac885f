"""Expected tables: the reader's refusals, and the plausibility of every figure shipped."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from pybench.core.gpu_models import machine_kind
from pybench.files.shipped import shipped_suites
from pybench.files.suite.expected_table import load_tables, read_table, write_table
from pybench.model.errors import FileError, Problem
from pybench.model.suite import ANY, ANY_GPU, ExpectedRow, ExpectedTable, FigureRow, RatioRow
from pybench.model.workloads.registry import METRICS

_SHIPPED = sorted((shipped_suites() / "expected").glob("*.toml"))
_TABLES = [read_table(path) for path in _SHIPPED]
_ROWS = [pytest.param(row, id=f"{table.name}-{n}") for table in _TABLES for n, row in enumerate(table.rows)]
_RATIOS = [case for case in _ROWS if isinstance(case.values[0], RatioRow)]
_ABSOLUTE = [case for case in _ROWS if isinstance(case.values[0], FigureRow)]

_HEAD = 'schema = 1\nname = "mine"\ndescription = "d"\n'
_ROW = """
[[row]]
machine = "h200"
workload = "generate"
metric = "output_tokens_per_s"
count = 2
value = 1.8
kind = "measured"
source = "s"
"""


def _write(folder: Path, text: str, name: str = "mine") -> Path:
    path = folder / "expected" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _table(name: str) -> ExpectedTable:
    return next(table for table in _TABLES if table.name == name)


def test_a_row_is_read_with_its_defaults(tmp_path: Path) -> None:
    """Every key that is not spelled out is ``any``, the baseline one GPU."""
    table = read_table(_write(tmp_path, _HEAD + _ROW))
    row = RatioRow(
        machine="h200",
        workload="generate",
        metric="output_tokens_per_s",
        count=2,
        value=1.8,
        kind="measured",
        source="s",
    )
    assert table == ExpectedTable(name="mine", description="d", rows=(row,))
    assert (row.fabric, row.backend, row.model_class, row.baseline_count) == (ANY, ANY, ANY, 1)


def test_a_table_beside_the_suite_goes_before_a_shipped_one(tmp_path: Path) -> None:
    """Own figures for the own machine, without touching what pybench ships."""
    _write(tmp_path, _HEAD.replace("mine", "ddp_train") + _ROW, "ddp_train")
    tables = load_tables(tmp_path / "s.toml", ["ddp_train", "replica_generate"])
    shipped = read_table(shipped_suites() / "expected" / "replica_generate.toml")
    assert [len(table.rows) for table in tables.values()] == [1, len(shipped.rows)]
    assert list(tables) == ["ddp_train", "replica_generate"]


def test_a_missing_table_names_the_closest_and_all(tmp_path: Path) -> None:
    """Tables in the suite's folder, and shipped ones."""
    _write(tmp_path, _HEAD + _ROW)
    with pytest.raises(FileError) as caught:
        load_tables(tmp_path / "s.toml", ["ddp_trian"])
    text = str(caught.value)
    assert text.startswith(
        f"{tmp_path / 's.toml'}: no expected table 'ddp_trian'; did you mean 'ddp_train'?; there are "
    )
    assert "mine" in text
    assert "replica_generate" in text


@pytest.mark.parametrize(
    ("old", "new", "kind", "facts"),
    [
        ("count = 2", "cuont = 2", "schema", ("row[0].cuont: unknown key", "'count'")),
        ("count = 2", "", "schema", ("mine.toml:5: row[0].count: missing",)),
        ("count = 2", 'count = "2"', "schema", ("mine.toml:9: row[0].count: found '2'", "an integer")),
        ("count = 2", "count = 0", "schema", ("row[0].count: found 0", "at least 1")),
        ("count = 2", "count = 1", "rule", ("row[0].count: 1 ", "baseline's count")),
        ("count = 2", "count = 2\nwhere = { batch_size = 4 }", "rule", ("row[0].where: ", "baseline_count")),
        (
            "count = 2",
            "count = 2\nbaseline_count = 1\nwhere = { batch = 4 }",
            "rule",
            ("row[0].where.batch: ", "generate"),
        ),
        (_ROW, _ROW * 2, "rule", ("mine.toml:14: row[1]: ", "row[0]")),
        ("count = 2", "count = 2\nnodes = 2", "rule", ("row[0].fabric: found 'any'", "infiniband, roce")),
        ("count = 2", "count = 2\nbaseline_count = 4", "rule", ("row[0].count: 2 ", "baseline's count")),
        ("value = 1.8", "", "rule", ("row[0]: ", "value", "minimum", "maximum")),
        ("value = 1.8", "value = 1.8\nminimum = 1.7", "rule", ("row[0]: ", "value", "minimum", "maximum")),
        ("value = 1.8", "minimum = 1.9\nmaximum = 1.7", "rule", ("row[0].minimum: 1.9 ", "maximum = 1.7")),
        ("value = 1.8", "maximum = 1.9", "rule", ("row[0]: ", "output_tokens_per_s needs a minimum")),
        ("value = 1.8", "minimum = 1.7\ntolerance = 0.1", "rule", ("row[0].tolerance: ",)),
        ("value = 1.8", "value = -1", "schema", ("row[0].value: found -1",)),
        ("value = 1.8", "value = inf", "schema", ("row[0].value: found inf",)),
        ("output_tokens_per_s", "output_token_per_s", "rule", ("did you mean 'output_tokens_per_s'?",)),
        ("output_tokens_per_s", "tokens_per_s", "rule", ("row[0].metric: found 'tokens_per_s'",)),
        ('"generate"', '"generation"', "rule", ("valid are none", "'generation'")),
        ('"measured"', '"guessed"', "schema", ("row[0].kind: found 'guessed'", "'measured', 'published' or 'claim'")),
        ('"h200"', '"h200"\nmodel_class = "9b"', "rule", ("row[0].model_class: found '9b'",)),
        ('"mine"', '"other"', "rule", ("mine.toml:2: name: found 'other'", "'mine'")),
        ("schema = 1", "schema = 2", "schema", ("schema: found 2", "at most 1")),
        ('description = "d"', "", "schema", ("description: missing",)),
        (_ROW, "\nrow = []\n", "schema", ("row: empty",)),
        (_ROW, "\n[[row\n", "syntax", ("not valid TOML",)),
    ],
)
def test_each_problem_has_kind_and_place(tmp_path: Path, old: str, new: str, kind: str, facts: tuple[str, ...]) -> None:
    """File, line, key, found value and valid values."""
    assert old in _HEAD + _ROW
    problems = _problems(tmp_path, (_HEAD + _ROW).replace(old, new))
    assert [problem.kind for problem in problems if all(fact in str(problem) for fact in facts)] == [kind]


def _problems(folder: Path, text: str) -> tuple[Problem, ...]:
    with pytest.raises(FileError) as caught:
        read_table(_write(folder, text))
    return caught.value.problems


_ABSOLUTE_ROW = """
[[row]]
machine = "h200"
workload = "collective"
metric = "busbw_bytes_per_s"
unit = "bytes/s"
count = 4
where = { operation = "all_reduce", message_bytes = 1024 }
value = 3e11
kind = "measured"
source = "s"
"""


def test_an_absolute_row_names_settings(tmp_path: Path) -> None:
    """The figure holds where they are as told."""
    (row,) = read_table(_write(tmp_path, _HEAD + _ABSOLUTE_ROW)).rows
    assert isinstance(row, FigureRow)
    assert (row.where, row.per_gpu) == ({"operation": "all_reduce", "message_bytes": 1024}, False)


def test_a_ratio_names_settings_beside_its_baseline(tmp_path: Path) -> None:
    """The baseline shows that no unit was forgotten; written, it is given though it is the default."""
    text = _ROW.replace("count = 2", "count = 2\nbaseline_count = 1\nwhere = { batch_size = 4 }")
    table = read_table(_write(tmp_path, _HEAD + text))
    (row,) = table.rows
    assert isinstance(row, RatioRow)
    assert row.where == {"batch_size": 4}
    write_table(table, tmp_path / "mine.toml")
    assert "baseline_count = 1" in (tmp_path / "mine.toml").read_text()
    assert read_table(tmp_path / "mine.toml") == table
    with pytest.raises(FileError, match=r"1 row .* \(measured .*, count 2, batch_size 4\), and is left as it is"):
        write_table(ExpectedTable(name="mine", description="d", rows=(replace(row, where={}),)), tmp_path / "mine.toml")


def test_rows_that_differ_in_settings_are_two(tmp_path: Path) -> None:
    """In whichever order they name them, rows of the same ones are one."""
    ratio = _ROW.replace("count = 2", "count = 2\nbaseline_count = 1\nwhere = { batch_size = 4, tensor_parallel = 2 }")
    other = ratio.replace("batch_size = 4", "batch_size = 8")
    assert len(read_table(_write(tmp_path, _HEAD + _ROW + ratio + other)).rows) == 3
    turned = ratio.replace("batch_size = 4, tensor_parallel = 2", "tensor_parallel = 2, batch_size = 4")
    assert [(found.kind, found.path) for found in _problems(tmp_path, _HEAD + ratio + turned)] == [("rule", "row[1]")]


@pytest.mark.parametrize(
    ("old", "new", "kind", "facts"),
    [
        ("operation =", "opration =", "rule", ("row[0].where.opration: ", "collective", "'operation'")),
        ("bytes/s", "GB/s", "rule", ("row[0].unit: found 'GB/s'", "'bytes/s'")),
        ("busbw_", "busbww_", "rule", ("row[0].metric: found 'busbww_bytes_per_s'", "'busbw_bytes_per_s'")),
        ("value = 3e11", "maximum = 3e11", "rule", ("row[0]: ", "busbw_bytes_per_s needs a minimum")),
        ('unit = "bytes/s"', "", "rule", ("row[0].where: ", "a unit")),
        ("count = 4", "count = 4\nbaseline_count = 2", "rule", ("row[0].baseline_count: ", "a unit")),
        ("1024 }", "[1] }", "schema", ("row[0].where: found a table", "'message_bytes'")),
    ],
)
def test_what_is_wrong_in_an_absolute_row(
    tmp_path: Path, old: str, new: str, kind: str, facts: tuple[str, ...]
) -> None:
    """Settings, metric and unit are the workload's own."""
    problems = _problems(tmp_path, _HEAD + _ABSOLUTE_ROW.replace(old, new))
    assert [problem.kind for problem in problems if all(fact in str(problem) for fact in facts)] == [kind]


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    """In the order of the lines."""
    text = _HEAD + _ROW.replace("value = 1.8", "") + _ROW.replace("count = 2", "count = 1")
    assert [problem.path for problem in _problems(tmp_path, text)] == ["row[0]", "row[1].count"]


def test_a_maximum_alone_can_gate_what_should_be_small(tmp_path: Path) -> None:
    """Energy per token fails above it."""
    text = _ROW.replace("output_tokens_per_s", "energy_j_per_output_token").replace("value", "maximum")
    assert read_table(_write(tmp_path, _HEAD + text)).rows[0].maximum == 1.8


def test_the_promises_of_guides_are_in() -> None:
    """Two, four and eight GPUs by DDP: 1.8, 3.4 and 6.4 times. Claims hold for any GPU, measured rows for a kind."""
    rows = [row for row in _table("ddp_train").rows if row.metric == "tokens_per_s"]
    assert [(row.machine, row.count, row.value, row.kind) for row in rows] == [
        ("gpu", 2, 1.8, "claim"),
        ("gpu", 4, 3.4, "claim"),
        ("gpu", 8, 6.4, "claim"),
        ("h100", 2, 1.77, "measured"),
    ]


def test_the_hours_of_a_guide_are_in() -> None:
    """8 h become 2.5 h by DDP, 2 h become 35 min with LoRA: on 4 GPUs over one, and themselves."""
    for table, hours in (("ddp_train", (8.0, 2.5)), ("lora_ddp_train", (2.0, 35 / 60))):
        rows = [row for row in _table(table).rows if row.metric == "job_h"]
        assert {row.kind for row in rows} == {"claim"}
        ratio, *found = (row.value for row in rows)
        assert found == pytest.approx(hours, abs=1e-4)
        assert ratio == pytest.approx(hours[1] / hours[0], abs=1e-4)


@pytest.mark.parametrize("row", _ROWS)
def test_every_figure_says_where_it_comes_from(row: ExpectedRow) -> None:
    """And is for a machine kind that pybench can give, or for every GPU; a claim is never for one machine's ratio."""
    assert len(row.source) > 10
    assert "to be measured" not in row.source
    known = {ANY, ANY_GPU, "cpu"}
    kind = machine_kind([row.machine.replace("rtx", "rtx ")])
    assert row.machine in known or row.machine.startswith("unknown-") or kind == row.machine
    if row.kind == "claim" and isinstance(row, RatioRow):
        assert row.machine == ANY_GPU


@pytest.mark.parametrize("row", _RATIOS)
def test_speedups_are_possible(row: RatioRow) -> None:
    """No throughput above 1.1 times its GPUs, none below 1; no time shrinks more than that."""
    linear = row.count / row.baseline_count
    figures = [figure for figure in (row.value, row.minimum, row.maximum) if figure is not None]
    assert figures
    if METRICS[row.metric].higher_is_better:
        assert all(1 <= figure <= 1.1 * linear for figure in figures if figure is not row.minimum)
        assert all(figure >= 0.5 for figure in figures)
    else:
        assert all(1 / (1.1 * linear) <= figure <= 2 * linear for figure in figures)


@pytest.mark.parametrize("table", [pytest.param(table, id=table.name) for table in _TABLES])
def test_more_gpus_never_promise_much_less(table: ExpectedTable) -> None:
    """Within one context the figure grows with the count, give or take the tolerance."""
    contexts: dict[tuple[object, ...], list[RatioRow]] = {}
    for row in table.rows:
        if isinstance(row, RatioRow) and METRICS[row.metric].higher_is_better:
            machine = (row.machine, row.fabric, row.backend, row.model_class, *row.where.items())
            key = (*machine, row.metric, row.baseline_count, row.kind)
            contexts.setdefault(key, []).append(row)
    for rows in contexts.values():
        ordered = sorted(rows, key=lambda row: row.count)
        assert len({row.count for row in rows}) == len(rows), "two figures for one count"
        for less, more in pairwise(ordered):
            assert (more.value or more.minimum or 0) >= (less.value or less.minimum or 0) * (1 - less.tolerance)


# Data sheets: bf16 and fp8 dense FLOP/s, memory bytes/s, and one direction of NVLink (18 links of 25 GB/s for Hopper).
_MATMUL_FLOPS_PER_S = {"a100": 312e12, "h100": 989e12, "h200": 989e12, "b200": 2250e12}
_MEMORY_BYTES_PER_S = {"h100": 3.35e12, "h200": 4.8e12, "rtx4090": 1.008e12}
_MEMORY_BYTES = {"rtx4090": 24e9, "h100": 80e9, "h200": 141e9, ANY_GPU: 80e9}  # of any: what guides train on
_NVLINK_BYTES_PER_S = {"a100": 300e9, "h100": 450e9, "h200": 450e9}
_PCIE_BYTES_PER_S = {"a100": 31.5e9, "h100": 63e9, "h200": 63e9}


@pytest.mark.parametrize("row", _ABSOLUTE)
def test_absolute_figures_are_within_reach_of_the_hardware(row: FigureRow) -> None:
    """Below the data sheet, but for in-switch reduction, and not so far below that nothing could fail."""
    figure = row.value or row.maximum or row.minimum or 0.0
    if row.workload == "collective":
        assert 0.1 < figure / _NVLINK_BYTES_PER_S[row.machine] < 1.1
    elif row.workload == "matmul":
        peak = _MATMUL_FLOPS_PER_S[row.machine] * (2 if row.where["precision"] == "float8_e4m3fn" else 1)
        assert 0.5 < figure / peak < 1
    elif row.workload == "memory_bandwidth":
        assert 0.5 < figure / _MEMORY_BYTES_PER_S[row.machine] < 1
    elif row.workload == "peer_copy":
        assert 0.5 < figure / _NVLINK_BYTES_PER_S[row.machine] < 1
    elif row.workload == "host_device_copy":
        assert 0.5 < figure / _PCIE_BYTES_PER_S[row.machine] < 1
    elif row.metric == "energy_j_per_output_token":
        # 700 W over between 1000 and 50000 tokens/s.
        assert 700 / 50_000 < figure < 700 / 1000
    elif row.metric == "output_tokens_per_s":
        # With each output token go four of the prompt; an 8B model takes 16 GFLOP for one.
        assert row.model_class == "8b"
        assert (row.where["prompt_tokens"], row.where["output_tokens"]) == (512, 128)
        assert 0.1 < figure * 5 * 16e9 / _MATMUL_FLOPS_PER_S[row.machine] < 1
    elif row.metric == "peak_memory_bytes":
        assert 0.5 < figure / _MEMORY_BYTES[row.machine] < 1
    elif row.metric == "job_h":
        # 8,058 samples of 512 to 4,096 tokens, 22 GFLOP a token (3.6e9 active weights), at 1 to 50 % of the peak.
        peak = row.count * _MATMUL_FLOPS_PER_S[row.machine]
        assert 8058 * 512 * 22e9 / (0.5 * peak) < figure * 3600 < 8058 * 4096 * 22e9 / (0.01 * peak)
    else:
        assert (row.metric, row.unit) == ("tokens_per_s", "tokens/s")
        assert 10 < figure < 1e6
