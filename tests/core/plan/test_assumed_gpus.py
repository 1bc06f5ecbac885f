"""A plan for GPUs that are not here."""

from __future__ import annotations

import dataclasses

import pytest

from pybench.core.gpu_models import with_gpus
from pybench.model.errors import UsageError
from tests.builders import MACHINE

NO_GPUS = dataclasses.replace(MACHINE, kind="cpu", gpus=(), gpu_count=0, gpu_names=(), gpu_vram_gib=())


@pytest.mark.parametrize(
    ("word", "kind", "mib"),
    [
        ("h200", "h200", 143771),
        ("H100", "h100", 81559),
        ("h100-pcie", "h100-pcie", 81559),
        ("a100-40gb", "a100", 40960),
        ("a100-80gb", "a100", 81920),
        ("a100-pcie-40gb", "a100-pcie", 40960),
        ("l40s", "l40s", 46068),
        ("rtx4090", "rtx4090", 24564),
        ("h100-64gb", "h100", 64 * 1024),
        ("gb300-279gb", "gb300", 279 * 1024),
        ("48gb", "unknown-48gb", 48 * 1024),
    ],
)
def test_a_word_is_a_kind_and_a_memory(word: str, kind: str, mib: float) -> None:
    """Memory as a driver reports it, else the word's number in GiB."""
    machine = with_gpus(NO_GPUS, word, 3)
    assert (machine.kind, machine.gpu_count, len(machine.gpus)) == (kind, 3, 3)
    assert machine.gpu_memory_bytes == pytest.approx(mib * 2**20)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("a100", "give a100-40gb or a100-80gb"),
        ("gb300", "give gb300-NUMBERgb"),
        ("h300", "valid are a100"),
        ("", "valid are a100"),
        ("0gb", "valid are a100"),
        ("h200-", "valid are a100"),
        ("99999gb", "valid are a100"),
        ("-48gb", "valid are a100"),
    ],
)
def test_what_names_no_card_is_refused(word: str, found: str) -> None:
    """With what to write."""
    with pytest.raises(UsageError, match=found):
        with_gpus(MACHINE, word, 1)


def test_a_number_alone_is_of_the_gpus_here() -> None:
    """And of none, where there is none."""
    machine = with_gpus(MACHINE, None, 4)
    assert (machine.kind, len(machine.gpus), machine.gpu_memory_bytes) == ("h200", 4, MACHINE.gpu_memory_bytes)
    with pytest.raises(UsageError, match="give it: --gpu h200"):
        with_gpus(NO_GPUS, None, 4)


def test_nothing_given_leaves_the_machine() -> None:
    """A kind without a number is one GPU."""
    assert with_gpus(MACHINE, None, None) is MACHINE
    assert len(with_gpus(MACHINE, "h200", None).gpus) == 1
