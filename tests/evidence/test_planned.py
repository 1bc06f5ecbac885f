"""Points that planning left out: held against what the run shows of the reason; what nothing shows is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pybench.evidence.values import Discrepancy
from pybench.evidence.verify import verify_folder
from pybench.model.container import ContainerSetup
from pybench.model.manifest import Manifest
from pybench.model.plan_options import PlanOptions
from pybench.model.software import Software
from pybench.model.suite import Plan, Skip, Suite
from pybench.run import suite_plan
from pybench.run.prepare import prepare_run
from tests.builders import NO_DRIVER
from tests.evidence.forgery import Forgery
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
        patch.setattr(suite_plan, "earlier_times_s", _long_times_s)
        run = prepare_run(folder / "drill.toml", folder / "runs", lambda _needs: launcher, options)
        finish(run)
    Forgery(run.folder.path).report()
    return run.folder.path


def _long_times_s(_suite: Suite, plan: Plan, *_others: object) -> dict[str, float]:
    """By earlier runs the second point takes longer than any limit here."""
    return {point.digest: 1000.0 for point in plan.points if point.id == TWO}


def of_copy(original: Path, folder: Path) -> Forgery:
    """To tamper with."""
    shutil.copytree(original.parents[1], folder, dirs_exist_ok=True)
    return Forgery(folder / "runs" / original.name)


def verified(forgery: Forgery) -> tuple[Discrepancy, ...]:
    return verify_folder(forgery.path, forgery.path.parents[1] / "drill.toml").discrepancies


def with_left_out(plan: Plan, change: Callable[[Skip], Skip]) -> Plan:
    return replace(plan, left_out=tuple(change(skip) for skip in plan.left_out))


@pytest.fixture(scope="module")
def limited_original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose time does not suffice for its second point, by what earlier runs took."""
    return measured(tmp_path_factory.mktemp("limited"), FakeLauncher(), PlanOptions(time_limit_s=600.0))


@pytest.fixture
def limited(limited_original: Path, tmp_path: Path) -> Forgery:
    return of_copy(limited_original, tmp_path)


def test_a_point_beyond_the_time_limit_is_not_checked(limited: Forgery) -> None:
    """What its attempts took before is in no file of the run; all else of it is as planning has it."""
    (skip,) = limited.folder.read_manifest().plan.left_out
    assert skip.reason == "2 attempts of about 33m20s together do not fit: --time-limit 10m has 10m left for them"
    assert [(found.place, found.text, found.state) for found in verified(limited)] == [
        (TWO, "not planned: --time-limit 10m may leave no time for it", "not checked")
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda m: replace(m, plan=with_left_out(m.plan, lambda skip: replace(skip, reason="its GPU was broken"))),
        lambda m: replace(m, plan=with_left_out(m.plan, lambda skip: replace(skip, lacks=None))),
        lambda m: replace(m, plan=with_left_out(m.plan, lambda skip: replace(skip, num_gpus=1))),
        lambda m: replace(m, plan=replace(m.plan, skips=m.plan.left_out, left_out=())),
        lambda m: replace(m, options=replace(m.options, time_limit_s=60.0)),
        lambda m: replace(m, options=replace(m.options, time_limit_s=None)),
        lambda m: replace(m, options=replace(m.options, time_limit_s=float("nan"))),
    ],
    ids=["reason", "lacks", "size", "skipped", "another limit", "no limit", "no number"],
)
def test_no_other_point_is_beyond_the_time_limit(limited: Forgery, change: Callable[[Manifest], Manifest]) -> None:
    """A limit is no licence to leave out what one likes."""
    limited.folder.write_manifest(change(limited.folder.read_manifest()))
    assert any(found.state == "does not hold" and found.place in {TWO, "manifest.json"} for found in verified(limited))


@pytest.fixture(scope="module")
def bare_original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose Python lacks the backend: all points are left out."""
    return measured(tmp_path_factory.mktemp("bare"), Bare(), PlanOptions())


@pytest.fixture
def bare(bare_original: Path, tmp_path: Path) -> Forgery:
    return of_copy(bare_original, tmp_path)


def test_a_package_that_the_run_lacked_leaves_points_out(bare: Forgery) -> None:
    """By the packages that it recorded: nothing is left unchecked."""
    assert [skip.lacks for skip in bare.folder.read_manifest().plan.left_out] == ["torch (not installed)"] * 2
    assert verified(bare) == ()


CONTAINER = ContainerSetup(
    engine="docker",
    engine_version="1",
    runtime="runc",
    rootless=False,
    images=(),
    lock="images.toml",
    mounts=(),
    relaxations=(),
)
REASON = "backend torch needs torch and transformers, not found here: install it there: pip install 'pybench[torch]'"
PACKAGES: dict[str, tuple[Callable[[Manifest], Manifest], str]] = {
    "recorded": (
        lambda m: replace(m, software=Software(python="3.11.0", packages={"torch": "2.9", "transformers": "5.0"})),
        f"left out ({REASON}) in the plan, {BY_SUITE}",
    ),
    "one of two recorded": (
        lambda m: replace(m, software=Software(python="3.11.0", packages={"torch": "2.9"})),
        'reason: "backend torch needs torch and transformers, not found here: install it there: … is claimed',
    ),
    "an image": (
        lambda m: replace(m, container=CONTAINER),
        f"left out ({REASON}) in the plan, {BY_SUITE}",
    ),
    "required": (
        lambda m: replace(m, options=replace(m.options, require="backend=torch")),
        f"left out ({REASON}) in the plan, skipped ({REASON}) by the suite on that machine",
    ),
    "another reason": (
        lambda m: replace(m, plan=with_left_out(m.plan, lambda skip: replace(skip, reason="it was slow"))),
        f"left out (it was slow) in the plan, {BY_SUITE}",
    ),
}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_that_the_run_had_leaves_none_out(bare: Forgery, name: str) -> None:
    """Both points are named, with what is claimed and what follows."""
    change, text = PACKAGES[name]
    bare.folder.write_manifest(change(bare.folder.read_manifest()))
    found = [one for one in verified(bare) if one.place in {ONE, TWO}]
    assert [(one.place, one.state) for one in found] == [(ONE, "does not hold"), (TWO, "does not hold")]
    assert all(one.text.startswith(text) for one in found), found


def test_packages_of_an_unrecorded_python_are_not_checked(bare: Forgery) -> None:
    """Nothing shows what it had, as in runs of versions that did not record it; another number of GPUs is an edit."""
    manifest = replace(bare.folder.read_manifest(), software=None)
    bare.folder.write_manifest(manifest)
    texts = {(one.text, one.state) for one in verified(bare) if one.place in {ONE, TWO}}
    assert texts == {("not planned: torch (not installed), and the run has no record of its Python", "not checked")}
    plan = with_left_out(manifest.plan, lambda skip: replace(skip, num_gpus=skip.num_gpus + 1))
    bare.folder.write_manifest(replace(manifest, plan=plan))
    assert {one.state for one in verified(bare) if one.place in {ONE, TWO}} == {"does not hold"}


def test_points_that_are_measured_or_beyond_a_number_of_gpus(tmp_path: Path) -> None:
    """A measured point shows its packages, also without a record of them; one that is left out has its one reason."""
    forgery = Forgery(measured(tmp_path, FakeLauncher(), PlanOptions(max_gpus=1)))
    forgery.manifest(lambda m: replace(m, software=Software(python="3.11.0", packages={})))
    assert verified(forgery) == ()
    forgery.manifest(lambda m: replace(m, plan=with_left_out(m.plan, lambda skip: replace(skip, lacks="9 GPUs"))))
    (found,) = verified(forgery)
    assert (found.place, found.state) == (TWO, "does not hold")
    assert found.text.startswith("lacks: '9 GPUs' is claimed, '2 GPUs (--max-gpus 1)' follows: it was changed, or")
