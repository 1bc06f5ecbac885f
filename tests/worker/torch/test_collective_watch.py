"""Who a hanging collective waits for, from where each rank is."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from pybench.worker.backends.common_torch.collective_watch import Collective, Place, account, hanging

GPUS = {0: "GPU-a", 1: "GPU-b", 2: "GPU-c"}


def last(operation: str, number: int, *, waits_s: float | None, members: tuple[int, ...] = (0, 1, 2)) -> Collective:
    age_s = 0.0 if waits_s is None else waits_s
    return Collective("default_pg", members, operation, number, is_over=waits_s is None, age_s=age_s)


def at(one: Collective | None) -> Place:
    return Place("in measured step 4", {} if one is None else {one.group: one})


def test_a_rank_that_did_not_come_is_named_with_its_gpu_and_place() -> None:
    """It entered the operation before the one that the others wait in."""
    waiting = last("all_reduce", 37, waits_s=9.0)
    places = {0: at(waiting), 1: at(last("broadcast", 36, waits_s=None)), 2: at(waiting)}
    assert account(places, GPUS, 5.0) == (
        "all_reduce, operation 37 of default_pg, in measured step 4: entered by rank 0 (GPU-a), rank 2 (GPU-c), not by "
        "rank 1 (GPU-b) within 5 s (rank 1 is in measured step 4, last entered broadcast, operation 36)"
    )


def test_a_stopped_rank_is_absent_and_named_by_what_it_wrote_before() -> None:
    """It writes no place; its GPU is known from the beginning."""
    places = {0: at(last("all_gather", 2, waits_s=6.0, members=(0, 1)))}
    assert account(places, GPUS, 5.0).endswith(
        "entered by rank 0 (GPU-a), not by rank 1 (GPU-b) within 5 s "
        "(rank 1 wrote nothing here: stopped, in code that holds the interpreter, or on another host)"
    )


def test_ranks_of_another_host_are_not_blamed() -> None:
    """Nothing is known of them here: where all of this host's are in it, one of theirs may not be."""
    waiting = last("all_reduce", 3, waits_s=8.0)
    places = {0: at(waiting), 1: at(waiting)}
    assert account(places, GPUS, 5.0, range(2)).endswith(
        "entered by rank 0 (GPU-a), rank 1 (GPU-b), all of this host's; not over after 5 s"
    )
    assert "not by rank 1 (GPU-b) within 5 s" in account({0: at(waiting)}, GPUS, 5.0, range(2))


def test_an_exchange_that_hangs_with_every_rank_in_it_blames_none() -> None:
    """A rank that is further is in it as well; the one that waits longest decides which operation it is."""
    waiting = last("all_reduce", 3, waits_s=8.0, members=(0, 1))
    places = {0: at(waiting), 1: at(last("all_reduce", 4, waits_s=6.0, members=(0, 1)))}
    assert account(places, GPUS, 5.0) == (
        "all_reduce, operation 3 of default_pg, in measured step 4: entered by rank 0 (GPU-a), rank 1 (GPU-b), and not "
        "over after 5 s"
    )


@pytest.mark.parametrize(("waits_s", "hangs"), [(None, False), (4.0, False), (6.0, True)])
def test_an_operation_hangs_after_the_limit(waits_s: float | None, hangs: bool) -> None:
    """A finished collective does not hang, nor one within the time limit."""
    one = last("all_reduce", 1, waits_s=waits_s)
    assert (hanging({one.group: one}, 5.0) is not None) == hangs
