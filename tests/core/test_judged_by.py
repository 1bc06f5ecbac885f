"""What judges the points of a plan, before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybench.core.gpu_models import with_gpus
from pybench.core.judged_by import judged_by, judged_sentence
from pybench.files.suite.expected_table import load_tables
from pybench.run.suite_plan import plan_suite
from tests.builders import MACHINE
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.judged_by")


def _judges(suite: str, kind: str, num_gpus: int, *, predicted: bool = False) -> dict[str, tuple[str, ...]]:
    machine = with_gpus(MACHINE, kind, num_gpus)
    read, plan = plan_suite(Path(suite), machine, assumed_hosts=1)
    tables = load_tables(Path(read.path), sorted(read.tables))
    return judged_by(read, plan, tables, machine, lambda _base, _point: predicted)


def test_a_row_of_a_table_judges_the_point_and_needs_its_baseline() -> None:
    """Four H200s have a row of torch; transformers has none on two."""
    found = _judges("tp_scaling", "h200", 4)
    assert found["decode[backend=torch,tensor_parallel=4]"] == ("table",)
    assert "baseline" in found["decode[backend=torch,tensor_parallel=1]"]
    assert found["decode[backend=transformers,tensor_parallel=2]"] == ("nothing",)


@pytest.mark.parametrize(("predicted", "judges"), [(False, ("nothing",)), (True, ("prediction",))])
def test_a_prediction_judges_where_no_row_does(*, predicted: bool, judges: tuple[str, ...]) -> None:
    """No table has eight GPUs of the main suite; a node check with a band would judge them."""
    found = _judges("tp_scaling", "h200", 8, predicted=predicted)
    assert found["decode[backend=torch,tensor_parallel=8]"] == judges


def test_gpus_of_a_node_judge_each_other_where_each_has_a_figure() -> None:
    """Products and links have; a launch's latency is of all together."""
    found = _judges("node_check", "h100", 2)
    assert "neighbours" in found["matmul[backend=torch,gpus=2]"]
    assert found["launch[backend=torch,gpus=2]"] == ("nothing",)


def test_the_sentence_names_the_run_whose_rates_predict() -> None:
    """Where the plan measures its own, none is named."""
    judges = {"a": ("prediction",), "b": ("nothing",)}
    assert judged_sentence(judges, None) == SENTENCES["the_sentence_names_the_run_whose"]
    assert judged_sentence(judges, "earlier").endswith("nothing 1 (rates of earlier)")
