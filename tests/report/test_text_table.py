"""Tables that are wider than the screen."""

from __future__ import annotations

from io import StringIO

from pybench.report.table import Table
from pybench.report.text.table import console, draw_tables, hanging

HEADS = ("point", "found", "allowed", "nothing", "reason")
ROWS = (("one", "1" * 20, "2" * 20, "-", "a limit"), ("two", "3" * 20, "-", "-", ""))


def drawn(table: Table, width: int) -> list[str]:
    return draw_tables([table], width=width).splitlines()[1:]


def test_columns_that_do_not_fit_stand_below_with_the_rows_names() -> None:
    assert drawn(Table("Limits", HEADS, ROWS), 40) == [
        "Limits",
        "point                 found",
        "───────────────────────────",
        f"one    {'1' * 20}",
        "    a limit",
        f"two    {'3' * 20}",
        "",
        "point               allowed",
        "───────────────────────────",
        f"one    {'2' * 20}",
    ]


def test_rows_of_one_name_are_told_apart_in_each_part() -> None:
    rows = (("one", "load", "1" * 20, "2" * 20), ("one", "save", "3" * 20, "4" * 20))
    lines = drawn(Table("", ("point", "phase", "time", "energy"), rows), 40)
    assert [line.split()[:2] for line in lines if line.startswith("one")] == [["one", "load"], ["one", "save"]] * 2


def test_a_name_is_wrapped_where_that_saves_a_part() -> None:
    rows = (("a point of a long name", "1" * 20, "2" * 20),)
    lines = drawn(Table("", ("point", "found", "allowed"), rows), 60)
    assert lines[1:] == ["─" * 56, f"a point of a  {'1' * 20}  {'2' * 20}", "long name"]


def test_a_word_of_a_name_stays_whole() -> None:
    """A part more costs less than a word in two."""
    rows = (("with_tensor_parallel", "1" * 20, "2" * 20), ("plain", "3" * 20, "4" * 20))
    lines = drawn(Table("", ("point", "found", "allowed"), rows), 60)
    assert [line for line in lines if line.startswith("with")] == [
        f"with_tensor_parallel  {'1' * 20}",
        f"with_tensor_parallel  {'2' * 20}",
    ]


def test_a_row_with_a_cell_of_the_screens_width_is_a_block() -> None:
    rows = (("one", "1" * 38),)
    assert drawn(Table("", ("point", "found"), rows), 40) == ["one", "    found", f"    {'1' * 36}", "    11"]


def test_more_than_three_parts_are_blocks() -> None:
    heads = ("point", *(f"metric {number}" for number in range(5)))
    rows = tuple((name, *(f"{name} {number}" * 6 for number in range(5))) for name in ("one", "two"))
    lines = drawn(Table("", heads, rows), 40)
    assert lines[0] == "one"
    assert lines[1].startswith("    metric 0")


def test_one_row_that_is_too_wide_is_a_block() -> None:
    """A block takes fewer lines than parts of one row, and repeats no name."""
    rows = (("one", "1" * 20, "2" * 20, "a limit"),)
    lines = drawn(Table("", ("point", "found", "allowed", "reason"), rows), 40)
    assert lines == ["one", f"    found {'1' * 20}, allowed", f"    {'2' * 20}, reason a limit"]


def test_heads_stand_on_two_lines_before_anything_is_cut() -> None:
    """Each above its column, at the rule."""
    rows = (("one", "1.5 s", "20 %"), ("two", "2.5 s", "30 %"))
    assert drawn(Table("", ("point", "floor of the switch", "share"), rows), 28) == [
        "         floor of",
        "point  the switch  share",
        "────────────────────────",
        "one         1.5 s   20 %",
        "two         2.5 s   30 %",
    ]


def test_what_all_rows_share_stands_above_them() -> None:
    """Where there is no room for the column alone; it may be text."""
    heads = ("point", "metric", "found", "allowed", "reason")
    rows = (("one", "peak_memory_bytes", "1", "2", "no table"), ("two", "peak_memory_bytes", "3", "4", "no table"))
    table = Table("Limits", heads, rows)
    assert drawn(table, 80)[1] == "point  metric             found  allowed  reason"
    assert drawn(table, 40)[1:3] == ["  all: reason no table", "point  metric             found  allowed"]
    assert drawn(table, 30)[1:] == [
        "  all: metric",
        "  peak_memory_bytes, reason no",
        "  table",
        "point  found  allowed",
        "─────────────────────",
        "one        1        2",
        "two        3        4",
    ]


def test_words_go_on_below_before_a_table_is_cut() -> None:
    """The column of numbers stays beside them; the rule is as wide as what stands below it."""
    rows = (("tensor TP 2, batch 16", "below pipeline PP 2, batch 16", "0.8"), ("four", "below tensor", "0.9"))
    assert drawn(Table("", ("point", "expected", "ratio"), rows), 49) == [
        "point         expected              ratio",
        "─────────────────────────────────────────",
        "tensor TP 2,  below pipeline PP 2,    0.8",
        "  batch 16      batch 16",
        "four          below tensor            0.9",
    ]


def test_words_of_a_narrow_name_go_on_with_its_axes() -> None:
    """A part of a label without room for itself does not leave a word of it on a line of its own."""
    rows = (("tensor TP 2, batch 16", "below pipeline PP 2, batch 16", "0.8"), ("four", "below tensor", "0.9"))
    assert drawn(Table("", ("point", "expected", "ratio"), rows), 46)[2:4] == [
        "tensor TP 2,  below pipeline PP    0.8",
        "  batch 16      2, batch 16",
    ]


def test_a_verdict_stands_in_the_first_part() -> None:
    """Beside its reason."""
    rows = (("one", "1" * 20, "2" * 20, "fail", "too slow"), ("two", "3" * 20, "4" * 20, "pass", ""))
    lines = drawn(Table("", ("point", "found", "allowed", "verdict", "reason"), rows), 40)
    assert lines[:4] == [
        "point  verdict                 found",
        "────────────────────────────────────",
        f"one    fail     {'1' * 20}",
        "    too slow",
    ]
    assert f"one    {'2' * 20}" in lines


def test_numbers_stand_at_the_right_and_words_at_the_left() -> None:
    """A name that holds a number is a word."""
    rows = (("one", "GPU 0", "≥ 9"), ("two", "GPU 10", "≥ 10"))
    lines = drawn(Table("", ("point", "GPU", "allowed"), rows), 40)
    assert lines[2:] == ["one    GPU 0       ≥ 9", "two    GPU 10     ≥ 10"]


def test_an_id_of_more_than_a_line_folds_at_its_commas() -> None:
    """Each part can be copied whole; other words stay as they are."""
    stream = StringIO()
    axes = ",".join(f"axis_{number}=1677721{number}" for number in range(4))
    hanging(console(stream, 40, color=False), f"  gather[{axes}]: skipped")
    lines = stream.getvalue().splitlines()
    assert [line.strip() for line in lines] == [
        "gather[axis_0=16777210,",
        "axis_1=16777211,axis_2=16777212,",
        "axis_3=16777213]: skipped",
    ]
    assert {len(line) - len(line.lstrip()) for line in lines} == {2, 4}
