"""One thing broken at a time: it is found and named, and nothing else is."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import pytest

from pybench.core.node_checks import nvls
from pybench.core.node_driver import fabric, nvlinks
from pybench.core.node_ranks import PointRecords
from pybench.model.machine import Switch
from pybench.model.record import Energy, GpuCounters, PcieLink, Xid
from pybench.model.wire import Failure
from tests.builders import with_settings
from tests.golden_sentences import sentences_of
from tests.nodes import Node

SENTENCES = sentences_of("core.node.drills")

SLOW = 5


def _slower(names: tuple[str, ...], factor: float) -> Any:
    def change(_workload: str, rank: int, values: dict[str, float]) -> dict[str, float]:
        return {name: value * (factor if rank == SLOW and name in names else 1) for name, value in values.items()}

    return change


@pytest.mark.no_cover  # what one draw covers, the drills below do
@pytest.mark.parametrize("seed", range(50))
def test_a_healthy_node_passes(make_node: type[Node], seed: int) -> None:
    """GPUs differ by 1.5 % in matmul, attempts and steps by 0.2 %: fifty of fifty, with the attempts of node_check."""
    node = make_node(seed)
    node.decide(max_attempts=4)
    assert node.found() == []


def test_every_check_is_made(node: Node) -> None:
    """Each has its verdict, in every run."""
    assert {check.name for check in node.checks()} == {
        *("slowest", "power_at_equal_work", "temperature", "clock", "link", "checksum"),
        *("throttling", "pcie", "memory_errors", "xid"),
    }


@pytest.mark.parametrize(
    ("metric", "factor"),
    [
        ("matmul_flops_per_s", 0.85),
        ("burn_flops_per_s", 0.85),
        ("memory_bytes_per_s", 0.92),
        ("host_copy_bytes_per_s", 0.5),
    ],
)
def test_a_slow_gpu(node: Node, metric: str, factor: float) -> None:
    """By its name, its metric and how much."""
    node.change_values(_slower((metric,), factor))
    (check,) = (check for check in node.checks() if check.verdict == "fail" and check.name == "slowest")
    assert check.subject == "GPU 5 (GPU-5)"
    assert check.value == pytest.approx(factor - 1, abs=0.05)
    assert check.reason.startswith(f"{metric}: -")
    assert {name for name, *_ in node.found()} <= {"slowest", "power_at_equal_work"}


def test_a_gpu_near_the_limit_is_undecided(node: Node) -> None:
    """More attempts may tell: the check names its point."""
    node.change_values(_slower(("matmul_flops_per_s",), 0.884))
    undecided = [check for check in node.checks() if check.verdict == "inconclusive"]
    assert [(check.name, check.point_id) for check in undecided] == [("slowest", "matmul[gpus=8]")]
    assert "allowed -10 %; undecided after 2 attempts; about " in undecided[0].reason


def test_an_undecided_gpu_is_shown_beside_a_failing_one(node: Node) -> None:
    """A clear fail of GPU 1 must not hide that GPU 5 is at its limit, too."""
    node.change_values(_slower(("matmul_flops_per_s",), 0.89))
    assert {check.subject for check in node.checks() if check.verdict != "pass"} == {"GPU 5 (GPU-5)"}

    def slower(name: str, rank: int, values: dict[str, float]) -> dict[str, float]:
        return {key: value * 0.7 if name == "matmul" and rank == 1 else value for key, value in values.items()}

    node.change_values(slower)
    shown = {(check.subject, check.verdict) for check in node.checks() if check.name == "slowest"}
    assert {("GPU 1 (GPU-1)", "fail"), ("GPU 5 (GPU-5)", "inconclusive")} <= shown


def test_one_attempt_shows_no_spread(make_node: type[Node]) -> None:
    """Then no throughput is judged."""
    found = make_node(num_attempts=1).checks()
    assert {check.verdict for check in found if check.name in {"slowest", "link"}} == {"inconclusive"}
    assert "one attempt shows no spread" in found[0].reason


@pytest.mark.parametrize("factor", [0.5, 0.9])
def test_a_slow_link(node: Node, factor: float) -> None:
    """One direction between two GPUs."""

    def change(_workload: str, rank: int, values: dict[str, float]) -> dict[str, float]:
        link = "link_to_3_bytes_per_s"
        return {**values, link: values[link] * factor} if rank == 1 and link in values else values

    node.change_values(change)
    (check,) = (check for check in node.checks() if check.verdict != "pass")
    assert (check.name, check.subject, check.verdict) == ("link", "GPU 1 (GPU-1) → GPU 3 (GPU-3)", "fail")
    assert check.value == pytest.approx(factor - 1, abs=0.02)
    assert check.reason.startswith("NV18, ")


def test_links_are_compared_with_their_kind(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A way over the host is slower than NVLink and no outlier."""
    near = [[a // 4 == b // 4 for b in range(8)] for a in range(8)]
    topology = tuple(tuple("NV18" if near[a][b] else "SYS" for b in range(8)) for a in range(8))
    machine = dataclasses.replace(node.machine, topology=topology)
    monkeypatch.setattr(type(node), "machine", machine)

    def change(_workload: str, rank: int, values: dict[str, float]) -> dict[str, float]:
        far = {f"link_to_{other}_bytes_per_s" for other in range(8) if not near[rank][other]}
        return {name: value * (0.1 if name in far else 1) for name, value in values.items()}

    node.change_values(change)
    assert node.found() == []
    assert {check.limit for check in node.checks() if check.name == "link"} == {-0.07, -0.2}
    assert sum(check.name == "link" for check in node.checks()) == 2


@pytest.mark.parametrize("slow", [{0}, {2, 3}])
def test_all_links_of_slow_gpus(make_node: type[Node], slow: set[int]) -> None:
    """Of one GPU of three, of two GPUs of four: most links are slow, and each is named."""
    num_gpus = 2 + len(slow)
    node = make_node(num_gpus=num_gpus)

    def change(_workload: str, rank: int, values: dict[str, float]) -> dict[str, float]:
        spoiled = {f"link_to_{other}_bytes_per_s" for other in range(num_gpus) if {rank, other} & slow}
        return {name: value * (0.6 if name in spoiled else 1) for name, value in values.items()}

    node.change_values(change)
    links = [check for check in node.checks() if check.name == "link"]
    assert {(check.subject, check.verdict) for check in links} == {
        (f"GPU {a} (GPU-{a}) → GPU {b} (GPU-{b})", "fail")
        for a in range(num_gpus)
        for b in range(num_gpus)
        if a != b and {a, b} & slow
    }
    assert not any("against a table alone" in check.reason for check in links)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (0.6, "fail")])
def test_two_gpus_have_one_way_each(make_node: type[Node], factor: float, verdict: str) -> None:
    """One slow direction shows against the other; the reason says that two slow ones would not."""
    node = make_node(num_gpus=2)
    node.change_values(
        lambda _workload, rank, values: {
            name: value * (factor if rank == 1 and name.startswith("link") else 1) for name, value in values.items()
        }
    )
    (check,) = (check for check in node.checks() if check.name == "link")
    assert check.verdict == verdict
    assert check.reason.endswith(
        "; all of them touch GPU 0 (GPU-0) and GPU 1 (GPU-1): slow as a whole shows against a table alone"
    )


@pytest.mark.parametrize(("reasons", "words"), [(0x48, "slowdown, hardware thermal slowdown"), (0x80, "brake")])
def test_throttling(node: Node, reasons: int, words: str) -> None:
    """Heat and power brake are; the power limit is not."""
    node.change_conditions(2, clock_event_reasons=reasons)
    (check,) = (check for check in node.checks() if check.verdict != "pass")
    assert (check.name, check.subject, check.verdict) == ("throttling", "GPU 2 (GPU-2)", "fail")
    assert words in check.reason


def test_throttling_tells_what_was_read(node: Node) -> None:
    """In how many points, and which boards met their power limit."""
    *_, last = (record for record in node.records if record.point_id == "burn[gpus=8]")
    node.records = [dataclasses.replace(r, conditions=()) if r.point_id == last.point_id else r for r in node.records]
    (check,) = (check for check in node.checks() if check.name == "throttling")
    assert check.verdict == "pass"
    assert check.reason == SENTENCES["throttling_tells_what_was_read"]


def test_a_gpu_of_which_nothing_was_read_does_not_pass(node: Node) -> None:
    """The others do."""
    node.change_conditions(2, clock_event_reasons=None)
    throttling = [check for check in node.checks() if check.name == "throttling"]
    assert [(check.subject, check.verdict) for check in throttling] == [
        ("GPU 2 (GPU-2)", "no_expectation"),
        ("all other GPUs", "pass"),
    ]


def test_a_lowered_power_limit_is_told(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boards at their limit are listed; a default limit is no cause."""
    gpus = list(node.machine.gpus)
    gpus[3] = dataclasses.replace(gpus[3], power_limit_w=500.0)
    monkeypatch.setattr(type(node), "machine", dataclasses.replace(node.machine, gpus=tuple(gpus)))
    for rank in (0, 1, 4, 5, 6, 7):
        node.change_conditions(rank, clock_event_reasons=0)
    (check,) = (check for check in node.checks() if check.name == "throttling")
    assert check.verdict == "pass"
    assert check.reason.endswith(
        "met their power limit: GPU 2 (GPU-2), GPU 3 (GPU-3); "
        "a cause: GPU 3 is limited to 500 W, below its default of 700 W"
    )
    node.change_conditions(2, clock_event_reasons=0)
    node.change_conditions(3, clock_event_reasons=0)
    (check,) = (check for check in node.checks() if check.name == "throttling")
    assert check.reason.endswith("; none met its power limit")


def test_a_hot_gpu(node: Node) -> None:
    """In both points that load the GPUs."""
    node.change_conditions(4, temperature_c=90.0)
    assert node.found() == [("temperature", "GPU 4 (GPU-4)", "fail")] * 2


@pytest.mark.parametrize(("speed", "findings"), [(1.0, []), (0.92, [("clock", "GPU 4 (GPU-4)", "fail")] * 2)])
def test_a_held_back_gpu(node: Node, speed: float, findings: list[tuple[str, str, str]]) -> None:
    """A lower clock counts where the GPU is slower, too: readings at the power limit vary."""
    node.change_conditions(4, sm_clock_hz=1.2e9)
    node.change_values(
        lambda _, rank, values: {
            name: value * speed if rank == 4 and name.endswith("flops_per_s") else value
            for name, value in values.items()
        }
    )
    assert node.found() == findings


def _hungry(energy: Energy | None, index: int, factor: float) -> Energy:
    assert energy is not None
    gpus = [
        dataclasses.replace(gpu, mean_power_w=(gpu.mean_power_w or 0.0) * (factor if gpu.index == index else 1))
        for gpu in energy.gpus
    ]
    return dataclasses.replace(energy, gpus=tuple(gpus))


def test_a_hungry_gpu(node: Node) -> None:
    """A third more joules for the same work."""
    node.records = [dataclasses.replace(record, energy=_hungry(record.energy, 6, 4 / 3)) for record in node.records]
    assert node.found() == [("power_at_equal_work", "GPU 6 (GPU-6)", "fail")] * 2


def test_unknown_sensors_expect_nothing(node: Node) -> None:
    """But say so."""
    node.change_conditions(4, temperature_c=None)
    assert node.found() == [("temperature", "all GPUs", "no_expectation")] * 2


@pytest.mark.parametrize("name", ["checksum", "mismatched_elements"])
def test_a_wrong_result(node: Node, name: str) -> None:
    """Another checksum than the others', or elements that did not repeat."""

    def change(_workload: str, rank: int, values: dict[str, float]) -> dict[str, float]:
        return {**values, name: values[name] + 1} if rank == 7 and name in values else values

    node.change_values(change)
    assert node.found() == [("checksum", "GPU 7 (GPU-7)", "fail")]


@pytest.mark.parametrize(("num_gpus", "apart"), [(2, {1}), (4, {2, 3})])
def test_no_majority_blames_no_one_alone(make_node: type[Node], num_gpus: int, apart: set[int]) -> None:
    """Half found one result and half another: all are named, and that it is unknown which are wrong."""
    node = make_node(num_gpus=num_gpus)
    node.change_values(
        lambda _workload, rank, values: {
            name: value + (name == "checksum" and rank in apart) for name, value in values.items()
        }
    )
    (check,) = (check for check in node.checks() if check.name == "checksum")
    names = ", ".join(f"GPU {rank} (GPU-{rank})" for rank in range(num_gpus))
    assert (check.subject, check.verdict) == (names, "fail")
    assert "no majority shows which are wrong" in check.reason


def test_of_two_gpus_the_one_that_does_not_repeat_is_wrong(make_node: type[Node]) -> None:
    """The other agrees with itself, and has nobody else to disagree with."""
    node = make_node(num_gpus=2)
    node.change_values(
        lambda _workload, rank, values: {
            name: value + (name in {"checksum", "mismatched_elements"} and rank == 0) for name, value in values.items()
        }
    )
    found = [(check.subject, check.verdict) for check in node.checks() if check.name == "checksum"]
    assert found == [("GPU 0 (GPU-0)", "fail")]


def test_gpus_that_all_differ_from_themselves(make_node: type[Node]) -> None:
    """Each is named by its own results."""
    node = make_node(num_gpus=2)
    node.change_values(
        lambda _workload, _rank, values: {
            name: value + (name == "mismatched_elements") for name, value in values.items()
        }
    )
    found = [(check.subject, check.verdict) for check in node.checks() if check.name == "checksum"]
    assert found == [("GPU 0 (GPU-0)", "fail"), ("GPU 1 (GPU-1)", "fail")]


def test_gpus_of_another_name_have_results_of_their_own(node: Node) -> None:
    """Another chip may round differently, so it is compared with its own kind."""

    def change(_workload: str, rank: int, values: dict[str, float]) -> dict[str, float]:
        return {**values, "checksum": 1.0} if rank >= 6 and "checksum" in values else values

    node.change_values(change)
    node.records = [
        dataclasses.replace(
            record,
            ranks=tuple(
                dataclasses.replace(rank, header=dataclasses.replace(rank.header, device_name="NVIDIA B200"))
                if rank.header.rank >= 6
                else rank
                for rank in record.ranks
            ),
        )
        for record in node.records
    ]
    assert node.found() == []


def _of_two_kinds(node: Node, others: Collection[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of ``others`` ran on cards with half of the speed, another clock and cooler."""
    machine = node.machine
    gpus = tuple(dataclasses.replace(gpu, name="NVIDIA L40S") if gpu.index in others else gpu for gpu in machine.gpus)
    monkeypatch.setattr(Node, "machine", dataclasses.replace(machine, kind="mixed", gpus=gpus))
    node.change_values(
        lambda _, rank, values: {
            name: value / 2 if name.endswith("_per_s") and rank in others else value for name, value in values.items()
        }
    )
    for rank in others:
        node.change_conditions(rank, sm_clock_hz=2.5e9, temperature_c=30.0)
    node.records = [
        dataclasses.replace(
            record,
            ranks=tuple(
                dataclasses.replace(rank, header=dataclasses.replace(rank.header, device_name="NVIDIA L40S"))
                if rank.header.rank in others
                else rank
                for rank in record.ranks
            ),
        )
        for record in node.records
    ]


def test_gpus_are_compared_with_those_of_their_kind(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three cards of eight are another kind's, which is slower, hungrier and cooler: nothing is wrong with any."""
    _of_two_kinds(node, {5, 6, 7}, monkeypatch)
    assert node.found() == []
    assert [check.subject for check in node.checks() if check.name == "clock"].count("GPU 0 (GPU-0)") < 2


def test_a_slow_gpu_of_the_lesser_kind(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    _of_two_kinds(node, {5, 6, 7}, monkeypatch)
    node.change_values(
        lambda name, rank, values: {
            key: value * (0.8 if (name, rank) == ("matmul", 6) else 1) for key, value in values.items()
        }
    )
    assert ("slowest", "GPU 6 (GPU-6)", "fail") in node.found()


def test_the_only_gpu_of_its_kind_is_compared_with_none(make_node: type[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, and neither passes nor fails; the others are compared."""
    node = make_node(num_attempts=4)
    _of_two_kinds(node, {7}, monkeypatch)
    found = [(check.name, check.verdict) for check in node.checks() if check.subject == "GPU 7 (GPU-7)"]
    sensors = ["power_at_equal_work", "temperature", "clock"]
    assert found == [(name, "no_expectation") for name in ["slowest", *sensors, *["slowest"] * 3, *sensors]]
    assert {verdict for _, subject, verdict in node.found() if subject != "GPU 7 (GPU-7)"} == set()


def test_two_gpus_of_two_kinds(make_node: type[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    node = make_node(num_gpus=2)
    _of_two_kinds(node, {1}, monkeypatch)
    of_points = [check for check in node.checks() if check.name in {"slowest", "clock", "temperature"}]
    assert {check.verdict for check in of_points} == {"no_expectation"}
    assert of_points[0].reason == SENTENCES["two_gpus_of_two_kinds"]


@pytest.mark.parametrize(
    ("fields", "verdict", "words"),
    [
        ({"ecc_uncorrected": 1}, "fail", "uncorrected ECC errors: 1"),
        ({"rows_remapped_uncorrected": 3}, "fail", "rows remapped: 2"),
        ({"remap_pending": True}, "fail", "waits for a reset"),
        ({"remap_failed": True}, "fail", "replace the GPU"),
        ({"ecc_corrected": 10}, "inconclusive", "corrected ECC errors: 7"),
    ],
)
def test_memory_errors_that_came(node: Node, fields: dict[str, int], verdict: str, words: str) -> None:
    """Errors from before do not count: three corrected errors, one remapped row."""
    node.change_counters(3, **fields)
    (check,) = (check for check in node.checks() if check.verdict != "pass")
    assert (check.name, check.subject, check.verdict) == ("memory_errors", "GPU 3 (GPU-3)", verdict)
    assert words in check.reason


def test_a_count_that_was_read_once_shows_nothing(node: Node) -> None:
    """Errors of before the run are not taken for new ones; a GPU that was lost does not pass."""
    assert node.records[0].health is not None
    whole = node.records[0].health

    def of_third(gpus: tuple[GpuCounters, ...], uncorrected: int | None) -> tuple[GpuCounters, ...]:
        return tuple(dataclasses.replace(g, ecc_uncorrected=uncorrected) if g.uuid == "GPU-3" else g for g in gpus)

    former, later = of_third(whole.before, None), of_third(whole.after, 12)
    lost = tuple(GpuCounters(uuid=gpu.uuid) if gpu.uuid == "GPU-3" else gpu for gpu in whole.after)
    for change in ({"before": former, "after": later}, {"after": lost}):
        node.change_health(**change)
        found = [(one.subject, one.verdict) for one in node.checks() if one.name == "memory_errors"]
        assert found == [("GPU 3 (GPU-3)", "no_expectation"), ("all other GPUs", "pass")]


def test_counters_that_fell_were_reset(node: Node) -> None:
    """With the driver; that is no error."""
    node.change_counters(3, ecc_corrected=0)
    assert node.found() == []


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ({"width": 8}, "generation 5 x8 at best, could be generation 5 x16"),
        ({"generation": 4}, "generation 4 x16 at best, could be generation 5 x16"),
    ],
)
def test_a_narrow_or_slow_slot(node: Node, link: dict[str, int], words: str) -> None:
    """In every attempt, however busy."""
    best = {"generation": 5, "width": 16, "generation_max": 5, "width_max": 16}
    links = tuple(PcieLink(uuid=f"GPU-{n}", **{**best, **(link if n == 1 else {})}) for n in range(8))
    node.change_health(links=links)
    (check,) = (check for check in node.checks() if check.verdict != "pass")
    assert (check.name, check.subject, check.reason) == ("pcie", "GPU 1 (GPU-1)", words)


def test_a_link_that_was_not_read_is_neither_slow_nor_well(node: Node) -> None:
    """Although the driver reports what it could be, or reported nothing of that GPU."""
    best = {"generation": 5, "width": 16, "generation_max": 5, "width_max": 16}
    links = tuple(PcieLink(uuid=f"GPU-{n}", **best) for n in range(7))
    for unread in ((), (PcieLink(uuid="GPU-7", generation_max=5, width_max=16),)):
        node.change_health(links=links + unread)
        assert [(check.subject, check.verdict, check.reason) for check in node.checks() if check.name == "pcie"] == [
            ("GPU 7 (GPU-7)", "no_expectation", SENTENCES["a_link_that_was_not_read_is_neither"]),
            ("all other GPUs", "pass", SENTENCES["a_link_that_was_not_read_is_neither_2"]),
        ]


def test_a_slow_link_hides_no_link_that_was_not_read(node: Node) -> None:
    """Both are named."""
    link = PcieLink(uuid="GPU-1", generation=5, width=8, generation_max=5, width_max=16)
    node.change_health(links=(link, *(PcieLink(uuid=f"GPU-{n}") for n in (0, *range(2, 8)))))
    found = [(check.subject, check.verdict) for check in node.checks() if check.name == "pcie"]
    assert found[0] == ("GPU 1 (GPU-1)", "fail")
    assert len(found) == 8
    assert {verdict for _, verdict in found[1:]} == {"no_expectation"}


def test_links_that_are_well_are_counted(node: Node) -> None:
    """All of them."""
    (check,) = (check for check in node.checks() if check.name == "pcie")
    assert (check.subject, check.reason) == ("all GPUs", SENTENCES["links_that_are_well_are_counted"])


@pytest.mark.parametrize(("place", "subject"), [("0000:1a:00", "GPU 1 (GPU-1)"), ("0000:99:00", "PCI 0000:99:00")])
def test_an_xid(node: Node, place: str, subject: str) -> None:
    """Once, however many attempts' logs hold it."""
    node.change_health(xids=(Xid(sequence=1, pci_bus_id=place, number=79),))
    assert node.found() == [("xid", subject, "fail")]


def test_a_fatal_error_of_a_switch(node: Node) -> None:
    """It belongs to no GPU."""
    node.change_health(xids=(Xid(sequence=1, pci_bus_id="0000:c1:00.0", number=20034, of_switch=True),))
    assert node.found() == [("fabric", "PCI 0000:c1:00.0", "fail")]


def test_a_fabric_that_is_not_up(node: Node) -> None:
    """Each GPU that waits for it fails; those that reached theirs pass."""
    first, *others = (dataclasses.replace(gpu, fabric="completed") for gpu in node.machine.gpus)
    machine = dataclasses.replace(node.machine, gpus=(dataclasses.replace(first, fabric="in progress"), *others))
    found = [(check.subject, check.verdict) for check in fabric((), machine)]
    assert found[0] == ("GPU 0 (GPU-0)", "fail")
    assert {verdict for _, verdict in found[1:]} == {"pass"}


@pytest.mark.parametrize(
    ("missing", "state", "checks"),
    [
        ({SLOW}, "on", [(f"GPU {SLOW} (GPU-{SLOW})", "fail")]),
        (set(), "on", [("all ranks", "pass")]),
        ({SLOW}, "off", []),
    ],
)
def test_nccl_without_multicast(node: Node, missing: set[int], state: Switch, checks: list[tuple[str, str]]) -> None:
    """A rank whose NCCL found no NVLink SHARP fails where fabric and environment allow it, and there alone."""
    node.change_values(lambda _, rank, values: {**values, "nvls": float(rank not in missing)})
    point, machine = node.plan.points[0], dataclasses.replace(node.machine, nvls=state)
    records = tuple(record for record in node.records if record.point_id == point.id)
    assert [(check.subject, check.verdict) for check in nvls(PointRecords(point, records, machine))] == checks


def test_what_the_driver_said_counts_where_every_worker_failed(node: Node) -> None:
    """An XID is why they did."""
    failure = Failure(cause="signal", message="killed", detail="")
    node.records = [dataclasses.replace(r, failure=failure, ranks=(), conditions=()) for r in node.records]
    node.change_health(xids=(Xid(sequence=1, pci_bus_id="0000:1a:00", number=79),))
    assert {check.name: (check.subject, check.verdict) for check in node.checks()} == {
        "throttling": ("all GPUs", "no_expectation"),
        "pcie": ("all GPUs", "pass"),
        "memory_errors": ("all GPUs", "pass"),
        "xid": ("GPU 1 (GPU-1)", "fail"),
    }


def test_a_gpu_with_fewer_active_nvlinks_is_named(node: Node) -> None:
    """One of 18 is down on GPU 0; GPUs of another model, or without a count, are not compared."""
    first, second, *others = node.machine.gpus
    gpus = (dataclasses.replace(first, num_nvlinks=17), dataclasses.replace(second, num_nvlinks=None), *others)
    (check,) = nvlinks((), dataclasses.replace(node.machine, gpus=gpus))
    assert (check.subject, check.verdict, check.reason) == ("GPU 0 (GPU-0)", "fail", "17 of 18 NVLinks active")
    assert list(nvlinks((), node.machine)) == []
    alone = dataclasses.replace(node.machine, gpus=(dataclasses.replace(first, name="NVIDIA A100", num_nvlinks=12),))
    assert list(nvlinks((), alone)) == []


def test_what_no_driver_tells_is_no_expectation(node: Node) -> None:
    """Visible, and neither pass nor fail."""
    node.change_health(xids=None, links=(), before=(), after=())
    for rank in range(8):
        node.change_conditions(rank, clock_event_reasons=None)
    assert node.found() == [
        (name, "all GPUs", "no_expectation") for name in ("throttling", "pcie", "memory_errors", "xid")
    ]


def test_cpu_ranks_are_compared_loosely(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share their cores: only less than half counts. No driver is asked."""
    node.records = [
        dataclasses.replace(
            record,
            ranks=tuple(
                dataclasses.replace(
                    rank, header=dataclasses.replace(rank.header, device="cpu", device_name="AVX2", device_uuid=None)
                )
                for rank in record.ranks
            ),
        )
        for record in node.records
    ]
    monkeypatch.setattr(type(node), "machine", dataclasses.replace(node.machine, kind="cpu", gpus=(), topology=()))
    node.change_values(_slower(("matmul_flops_per_s",), 0.7))
    assert node.found() == []
    node.change_values(_slower(("matmul_flops_per_s",), 0.5))
    assert node.found() == [("slowest", "rank 5", "fail")]
    assert {check.name for check in node.checks()} == {"slowest", "link", "checksum"}


def test_a_suite_that_measures_no_node_has_no_checks(node: Node) -> None:
    """A GPU without a measurement has none either."""
    node.records = []
    assert node.checks() == ()
    node.plan = dataclasses.replace(node.plan, points=())
    assert node.checks() == ()


def test_one_gpu_has_nobody_to_be_compared_with(node: Node) -> None:
    """Its results must repeat all the same."""
    point = next(point for point in node.plan.points if point.benchmark == "burn")
    alone = with_settings(point, gpus=1)
    node.plan = dataclasses.replace(node.plan, points=(alone,))
    node.records = [
        dataclasses.replace(r, ranks=r.ranks[:1], point_digest=alone.digest)
        for r in node.records
        if r.point_id == point.id
    ]
    assert [check.name for check in node.checks()][:1] == ["checksum"]
