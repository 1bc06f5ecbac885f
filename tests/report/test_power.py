"""The output of ``pybench power record``, for people and for programs."""

from __future__ import annotations

from dataclasses import replace

from pybench.model.record import Energy, GpuEnergy
from pybench.power.text import energy_json, energy_table

KNOWN = GpuEnergy(
    uuid="GPU-0",
    index=0,
    energy_j=400.0,
    energy_low_j=398.0,
    energy_high_j=402.0,
    mean_power_w=400.0,
    max_power_w=410.0,
    method="counter+series",
    num_publications=10,
)
UNOPENED = GpuEnergy(uuid="GPU-1", index=None, method="none", flags=("lost", "insufficient"))
ENERGY = Energy(start_ns=5, end_ns=1_000_000_005, gpus=(KNOWN, UNOPENED), scope="gpu_board")


def test_json_has_every_gpu_and_each_scope_by_its_name() -> None:
    found = energy_json(ENERGY, {"package-0": 90.0}, None)
    assert found["window"] == {"start_monotonic_ns": 5, "end_monotonic_ns": 1_000_000_005}
    assert found["scope"] == "gpu_board"
    assert found["cpu_packages"] == [{"name": "package-0", "scope": "cpu_package", "energy_j": 90.0}]
    assert found["energy_j"] is None  # one GPU's is unknown, so the sum is
    known, unopened = found["gpus"]
    assert (known["uuid"], known["index"], known["energy_j"], known["energy_low_j"]) == ("GPU-0", 0, 400.0, 398.0)
    assert (known["energy_high_j"], known["mean_power_w"], known["max_power_w"]) == (402.0, 400.0, 410.0)
    assert (known["method"], known["flags"]) == ("counter+series", [])
    assert (unopened["index"], unopened["energy_j"], unopened["flags"]) == (None, None, ["lost", "insufficient"])


def test_a_gpu_that_could_not_be_opened_goes_by_its_uuid() -> None:
    text = energy_table(ENERGY, {}, "no RAPL zone")
    assert "GPU-1  unknown               -        -        -  -\n    lost, insufficient\n" in text
    assert "all    unknown" in text
    assert text.count("  lost: the GPU stopped responding while power was recorded\n") == 1
    assert "CPU packages: unknown: no RAPL zone" in text


def test_joules_of_several_gpus_fit_80_columns() -> None:
    """Long flags are below their row, meanings and scope on separate lines; wide screens have one table."""
    used = replace(KNOWN, energy_j=123_456.7, energy_low_j=123_400.1, energy_high_j=123_999.9, mean_power_w=1400.0)
    flagged = replace(used, index=1, uuid="GPU-1", flags=("short_window", "temperature_drift"))
    energy = replace(ENERGY, gpus=(used, flagged))
    lines = energy_table(energy, {"package-0": 90.0}, None).splitlines()
    assert lines[:6] == [
        "GPU     energy        sensor's bound      mean     peak  method",
        "───────────────────────────────────────────────────────────────────────",
        "0    123,457 J  [123,400, 124,000] J  1400.0 W  410.0 W  counter+series",
        "1    123,457 J  [123,400, 124,000] J  1400.0 W  410.0 W  counter+series",
        "    short_window, temperature_drift",
        "all  246,913 J  [246,800, 248,000] J  2800.0 W        -",
    ]
    assert "  package-0: 90 J (CPU package, by RAPL)" in lines
    assert max(map(len, lines)) <= 80
    wide = energy_table(energy, {}, None, width=120).splitlines()
    assert "counter+series  short_window, temperature_drift" in wide[3]


def test_one_gpu_without_a_flag_has_no_column_of_them() -> None:
    """And no line for all."""
    lines = energy_table(replace(ENERGY, gpus=(KNOWN,)), {}, None).splitlines()
    assert lines[0].split() == ["GPU", "energy", "sensor's", "bound", "mean", "peak", "method"]
    assert lines[3].startswith("  1 s; scope: gpu_board, without NVSwitch")


def test_a_counter_that_contradicts_the_power_says_by_how_much() -> None:
    """The joules of a module leave out neither its CPU nor its memory."""
    apart = replace(KNOWN, energy_low_j=400.0, energy_high_j=640.0, flags=("counter_vs_power", "module_scope"))
    text = " ".join(energy_table(replace(ENERGY, gpus=(apart,), scope="module"), {}, None).split())
    assert "differ by more than 3 %: the bound holds both; its ends are 60 % apart" in text
    assert "scope: module, without NVSwitch, PCIe switches; the board" in text
