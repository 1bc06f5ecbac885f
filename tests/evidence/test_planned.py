"""Points that planning left out: expanded again where the run shows the reason, else not checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pybench.core.gpu_models import with_gpus
from pybench.evidence.plan import check_plan
from pybench.model.machine import Software
from pybench.model.manifest import PlanOptions
from pybench.model.suite import Plan, Skip
from pybench.run import suite_plan
from pybench.run.prepare import prepare_run
from pybench.run.suite_plan import plan_suite
from tests.builders import MACHINE, MANIFEST, NO_DRIVER
from tests.evidence.forgery import Forgery, copy_of
from tests.run.drill import suite_text, table_text
from tests.run.fake_launcher import FakeLauncher
from tests.run.test_run import finish

ONE, TWO = "decode[tensor_parallel=1]", "decode[tensor_parallel=2]"
BY_SUITE = "measured by the suite on that machine: it was changed, or another build of this version planned the run"


class Bare(FakeLauncher):
    """Its Python has no package."""

    def missing(self, packages: tuple[str, ...]) -> tuple[str, ...]:
        return packages

    def software(self) -> Software:
        return Software(python="3.11.0", packages={})


def measured(folder: Path, launcher: FakeLauncher, options: PlanOptions) -> Path:
    """A finished run of the drill on a CPU, with its reports."""
    (folder / "expected").mkdir(parents=True)
    (folder / "expected" / "drill.toml").write_text(table_text())
    (folder / "drill.toml").write_text(suite_text(max_attempts=2, time_limit_s=60))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*NO_DRIVER)
        patch.setattr(suite_plan, "earlier_attempts_s", _long_times_s)
        run = prepare_run(folder / "drill.toml", folder / "runs", lambda _needs: launcher, options)
        finish(run)
    Forgery(run.folder.path).report()
    return run.folder.path


def _long_times_s(_root: Path, _suite: str, _machine: str, plan: Plan) -> dict[str, float]:
    """By earlier runs the second point takes longer than any limit here."""
    return {point.digest: 1000.0 for point in plan.points if point.id == TWO}


def with_left_out(plan: Plan, change: Callable[[Skip], Skip]) -> Plan:
    return replace(plan, left_out=tuple(change(skip) for skip in plan.left_out))


@pytest.fixture(scope="module")
def limited_original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose time does not suffice for its second point, by what earlier runs took."""
    return measured(tmp_path_factory.mktemp("limited"), FakeLauncher(), PlanOptions(time_limit_s=600.0))


@pytest.fixture
def limited(limited_original: Path, tmp_path: Path) -> Forgery:
    return copy_of(limited_original, tmp_path)


def test_a_point_beyond_the_time_limit_is_not_checked(limited: Forgery) -> None:
    """No file of the run shows what its attempts took before."""
    assert [(each.kind, each.place, each.state) for each in limited.verified().discrepancies] == [
        ("plan", TWO, "not checked")
    ]


@pytest.mark.parametrize("limit_s", [None, float("nan")])
def test_without_a_limit_no_point_is_beyond_it(limited: Forgery, limit_s: float | None) -> None:
    """The point is then one that the sender hides."""
    manifest = limited.folder.read_manifest()
    limited.folder.write_manifest(replace(manifest, options=replace(manifest.options, time_limit_s=limit_s)))
    assert any(
        each.state == "does not hold" and each.place != "results.json" for each in limited.verified().discrepancies
    )


@pytest.fixture(scope="module")
def bare_original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose Python lacks the backend: all points are left out."""
    return measured(tmp_path_factory.mktemp("bare"), Bare(), PlanOptions())


@pytest.fixture
def bare(bare_original: Path, tmp_path: Path) -> Forgery:
    return copy_of(bare_original, tmp_path)


def test_a_package_that_the_run_lacked_leaves_points_out(bare: Forgery) -> None:
    """By the packages that it recorded: nothing is left unchecked."""
    assert [skip.lacks for skip in bare.folder.read_manifest().plan.left_out] == ["torch (not installed)"] * 2
    assert bare.verified().discrepancies == ()
    manifest = bare.folder.read_manifest()
    of_earlier_build = with_left_out(manifest.plan, lambda skip: replace(skip, kind=None))
    bare.folder.write_manifest(replace(manifest, plan=of_earlier_build))
    assert bare.verified().discrepancies == ()


@pytest.mark.parametrize(
    "change",
    [lambda skip: replace(skip, num_gpus=skip.num_gpus + 1), lambda skip: replace(skip, lacks=None)],
    ids=["another size", "no package"],
)
def test_a_point_left_out_for_anything_else_is_named(bare: Forgery, change: Callable[[Skip], Skip]) -> None:
    """Only the package that it lacks is taken from the run."""
    manifest = bare.folder.read_manifest()
    bare.folder.write_manifest(replace(manifest, plan=with_left_out(manifest.plan, change)))
    planned = [each for each in bare.verified().discrepancies if each.kind == "plan"]
    assert [(each.place, each.state) for each in planned] == [(ONE, "does not hold"), (TWO, "does not hold")]


def test_a_point_beyond_max_gpus_follows_from_the_options(tmp_path: Path) -> None:
    """The recorded command line is part of every report."""
    assert Forgery(measured(tmp_path, FakeLauncher(), PlanOptions(max_gpus=1))).verified().discrepancies == ()


@pytest.mark.parametrize("rates_run", [None, "earlier"])
def test_rates_of_an_earlier_run_are_no_missing_points(rates_run: str | None, tmp_path: Path) -> None:
    """The suite expands to the same plan where the manifest names the run; a plan that lost them does not."""
    machine = with_gpus(MACHINE, "h200", 2)
    suite, plan = plan_suite(Path("ddp_scaling"), machine, root=tmp_path, earlier_rates=lambda *_: rates_run)
    manifest = replace(MANIFEST, suite=suite, plan=plan, machine=machine, device="cuda", tables={})
    points = [each for each in check_plan(manifest, None, bool, same_build=True) if each.kind == "plan"]
    assert points == []
    lost = replace(manifest, plan=replace(plan, rates_run=None))
    points = [each for each in check_plan(lost, None, bool, same_build=True) if each.kind == "plan"]
    assert bool(points) == (rates_run is not None)
