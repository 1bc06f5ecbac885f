"""Which tier a test has, and which modules a choice of tiers leaves unread."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.tiers import HERE, TIERS, TIME_LIMITS_S, left_out, tier_of


def test_other_tiers_start_what_they_like() -> None:
    """This one is not pure."""
    subprocess.run([sys.executable, "-V"], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("module", "tier"),
    [
        ("test_floors.py", "source"),
        ("core/plan/test_expand.py", "pure"),
        ("core/node/test_drills.py", "pure"),
        ("worker/test_timing.py", "process"),
        ("worker/torch/test_control.py", "torch"),
        ("cli/test_main.py", "process"),
        ("cli/test_ci.py", "runs"),
    ],
)
def test_the_nearest_name_decides(module: str, tier: str) -> None:
    """The module's own, its folder's, or that of the folder above."""
    assert tier_of(HERE / module) == tier


def test_make_runs_every_tier() -> None:
    """A tier that no target names would run nowhere; a workflow runs the tiers up to the whole runs."""
    chosen = re.findall(r'\(PYTEST\) -m (?:"([a-z ]+)"|([a-z]+))', (HERE.parent / "Makefile").read_text())
    assert {tier for choices in chosen for choice in choices if choice for tier in choice.split(" or ")} == set(TIERS)
    (shared,) = re.findall(r'pytest -q -m "([a-z ]+)"', (HERE.parent / ".github/workflows/ci.yml").read_text())
    assert shared.split(" or ") == [*TIERS][: [*TIERS].index("runs")]


def test_every_place_is_there() -> None:
    """A module that was renamed would change its tier without a word."""
    assert [place for places in TIERS.values() for place in places if not (HERE / place).exists()] == []


def test_a_tiers_time_limit_gives_way_to_a_tests_own(request: pytest.FixtureRequest) -> None:
    """This test has no mark."""
    marker = request.node.get_closest_marker("timeout")
    assert marker is not None
    assert marker.args == (TIME_LIMITS_S["source"],)


def test_a_new_folder_needs_a_tier() -> None:
    """No test goes without one."""
    with pytest.raises(pytest.UsageError, match=r"^tests/new: no tier; add the folder to TIERS in tests/tiers\.py$"):
        tier_of(HERE / "new" / "test_x.py")


def test_every_folder_of_tests_has_a_tier() -> None:
    """And each has one that is known."""
    modules = [path for path in HERE.rglob("test_*.py") if "__pycache__" not in path.parts]
    assert {tier_of(path) for path in modules} == set(TIERS)


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        ("", {*TIERS}),
        ("pure", {"pure"}),
        ("pure or source", {"pure", "source"}),
        ("not pure", {*TIERS} - {"pure"}),
        ("not pure and not native", {*TIERS}),
        ("gpu", {*TIERS}),
    ],
)
def test_modules_that_a_choice_leaves_unread(expression: str, kept: set[str]) -> None:
    """Any other expression reads all files, and pytest deselects tests."""
    last = {tier: HERE / places[-1] for tier, places in TIERS.items()}
    modules = {tier: place if place.suffix else place / "test_x.py" for tier, place in last.items()}
    assert {tier for tier, path in modules.items() if not left_out(path, expression)} == kept
