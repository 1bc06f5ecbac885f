"""Tables that are wider than the screen."""

from __future__ import annotations

from pybench.report.table import Cell, Table
from pybench.report.text.table import Paper, hanging

HEADS = ("point", "found", "allowed", "nothing", "reason")
ROWS = (("one", "1" * 20, "2" * 20, "-", "a limit"), ("two", "3" * 20, "-", "-", ""))


def drawn(table: Table, width: int) -> list[str]:
    out = Paper(width)
    out.table(table)
    return out.text().splitlines()[1:]


def test_a_name_goes_on_below_before_a_table_becomes_blocks() -> None:
    """Between axes where these are short enough, else between words; no word is cut."""
    rows = (("tensor TP 2, batch 16", "1" * 20, "2" * 20), ("four", "3" * 20, "4" * 20))
    assert drawn(Table("", ("point", "found", "allowed"), rows), 62)[2:] == [
        f"tensor TP 2,  {'1' * 20}  {'2' * 20}",
        "  batch 16",
        f"four          {'3' * 20}  {'4' * 20}",
    ]


def test_a_narrow_table_leaves_intervals_out() -> None:
    """The figure stays; a wide screen has both."""
    rows = (("one", Cell("1,234 tok/s", 1234.0, "[1,200, 1,260]"), "pass"), ("two", Cell("-"), "missing"))
    table = Table("", ("point", "found", "verdict"), rows)
    assert drawn(table, 80)[2] == "one    1,234 tok/s [1,200, 1,260]  pass"
    assert drawn(table, 30)[2] == "one    1,234 tok/s  pass"


def test_a_word_of_a_name_stays_whole() -> None:
    """A block is longer, but a word in two is harder to read."""
    rows = (("with_tensor_parallel", "1" * 20, "2" * 20), ("plain", "3" * 20, "4" * 20))
    lines = drawn(Table("", ("point", "found", "allowed"), rows), 60)
    assert lines[:2] == ["with_tensor_parallel", f"    found {'1' * 20}, allowed {'2' * 20}"]


def test_a_row_with_a_cell_of_the_screens_width_is_a_block() -> None:
    rows = (("one", "1" * 38),)
    assert drawn(Table("", ("point", "found"), rows), 40) == ["one", "    found", f"    {'1' * 36}", "    11"]


def test_a_block_breaks_its_lines_between_cells() -> None:
    """A head stays with its value; what is empty is left out."""
    lines = drawn(Table("Limits", HEADS, ROWS), 40)
    assert lines == [
        "Limits",
        "one",
        f"    found {'1' * 20},",
        f"    allowed {'2' * 20},",
        "    reason a limit",
        "two",
        f"    found {'3' * 20}",
    ]


def test_what_all_rows_share_stands_above_them() -> None:
    """Where there is no room for the column alone; it may be text."""
    heads = ("point", "metric", "found", "allowed", "reason")
    rows = (("one", "peak_memory_bytes", "1", "2", "no table"), ("two", "peak_memory_bytes", "3", "4", "no table"))
    table = Table("Limits", heads, rows)
    assert drawn(table, 80)[1] == "point  metric             found  allowed  reason"
    assert drawn(table, 40)[1:3] == ["  all: reason no table", "point  metric             found  allowed"]
    assert drawn(table, 30)[1:] == [
        "  all:",
        "  metric peak_memory_bytes,",
        "  reason no table",
        "point  found  allowed",
        "─────────────────────",
        "one        1        2",
        "two        3        4",
    ]


def test_numbers_stand_at_the_right_and_words_at_the_left() -> None:
    """A name that holds a number is a word."""
    rows = (("one", "GPU 0", "≥ 9"), ("two", "GPU 10", "≥ 10"))
    lines = drawn(Table("", ("point", "GPU", "allowed"), rows), 40)
    assert lines[2:] == ["one    GPU 0       ≥ 9", "two    GPU 10     ≥ 10"]


def test_an_id_of_more_than_a_line_folds_at_its_commas() -> None:
    """Each part can be copied whole; other words stay as they are."""
    out = Paper(40)
    axes = ",".join(f"axis_{number}=1677721{number}" for number in range(4))
    hanging(out, f"  gather[{axes}]: skipped")
    lines = out.text().splitlines()
    assert [line.strip() for line in lines] == [
        "gather[axis_0=16777210,",
        "axis_1=16777211,axis_2=16777212,",
        "axis_3=16777213]: skipped",
    ]
    assert {len(line) - len(line.lstrip()) for line in lines} == {2, 4}


def test_a_percent_sign_stays_with_its_number() -> None:
    """A line ends before the number."""
    out = Paper(40)
    hanging(out, "GPU 2 is 53 % slower in matmul and 51 % in memory")
    lines = out.text().splitlines()
    assert lines == ["GPU 2 is 53 % slower in matmul and", "  51 % in memory"]
