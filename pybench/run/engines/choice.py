"""From the command line and the suite to a launcher that is known to work."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from shutil import which

from pybench.files.suite.rules import forbidden_source
from pybench.model.container import ContainerRequest
from pybench.model.errors import MachineError, UsageError
from pybench.run.engines import CONTAINER_ENGINES, LOCAL
from pybench.run.engines.base import (
    EngineOptions,
    Launcher,
    LaunchRequirements,
    Notify,
    find_container_engines,
    get_engine,
)
from pybench.run.engines.environment import MIN_SECRET_LENGTH
from pybench.run.images.lock import AbsentImageError, locked_image

Choose = Callable[[LaunchRequirements], Launcher]
"""Gives the launcher of a run."""


def choose_launcher(options: EngineOptions, needs: LaunchRequirements, notify: Notify) -> Launcher:
    """A launcher that was started once. Raises ``UsageError``, ``FileError`` or ``MachineError``."""
    name = needs.engine or options.engine
    _require_secrets(needs.request)
    if options.python and name == "auto":
        name = LOCAL
    if options.python and name != LOCAL:
        raise UsageError(f"--python names an interpreter of this machine; it goes with --engine {LOCAL}, not {name}")
    if options.image and name == LOCAL:
        raise UsageError(
            f"--image {options.image}: engine {LOCAL} runs no image; leave out --image, or choose another --engine"
        )
    if name == LOCAL:
        _name_unapplied(needs.request, notify)
    else:
        needs = _with_resolved_mounts(needs)
    if name == "auto":
        return _automatic(options, needs, notify)
    engine = get_engine(name)
    facts = engine.find()
    if facts.reason:
        raise MachineError(
            f"{facts.reason}; install or start it, choose another --engine, or run without containers: --engine {LOCAL}"
        )
    try:
        return engine.launcher(facts, needs, options, notify, fetch=True)
    except AbsentImageError as error:
        raise MachineError(f"{error}; or run without containers: --engine {LOCAL}") from None


def _require_secrets(request: ContainerRequest) -> None:
    for secret in request.secrets:
        value = os.environ.get(secret)
        if value is None:
            raise UsageError(f"the suite needs the secret {secret}, which the environment doesn't have")
        if len(value) < MIN_SECRET_LENGTH or not value.isprintable():
            raise UsageError(f"the secret {secret} must be one line of {MIN_SECRET_LENGTH} characters or more")


def _with_resolved_mounts(needs: LaunchRequirements) -> LaunchRequirements:
    """Resolve links of mounts. Raises ``UsageError`` where that belongs to the host alone."""
    mounts = tuple(replace(mount, source=os.path.realpath(mount.source)) for mount in needs.request.mounts)
    for mount, real in zip(needs.request.mounts, mounts, strict=True):
        if inside := forbidden_source(real.source):
            raise UsageError(
                f"[container] mounts: {mount.source} leads to {real.source}, and {inside} belongs to the host alone; "
                "mount another folder"
            )
    return replace(needs, request=replace(needs.request, mounts=mounts))


def _name_unapplied(request: ContainerRequest, notify: Notify) -> None:
    """Name settings for containers: they have no effect without one, and figures may differ."""
    wanted = {
        "image": request.image,
        "environment": ", ".join(request.environment),
        "mounts": ", ".join(mount.source for mount in request.mounts),
    }
    if unapplied := [f"{key} {value}" for key, value in wanted.items() if value]:
        notify(f"no container, so the suite's [container] has no effect: {'; '.join(unapplied)}")


def _automatic(options: EngineOptions, needs: LaunchRequirements, notify: Notify) -> Launcher:
    """First engine that answers and has every image; without one this Python, with the reason shown."""
    local = get_engine(LOCAL)
    if not needs.backends:  # no point is left to run, and any engine has all of no images
        return local.launcher(local.find(), needs, options, notify, fetch=False)
    is_named = bool(options.image or needs.request.image)
    try:
        # An engine that is here could not help where the lock has no image for a backend on this device.
        if not is_named and any(map(which, CONTAINER_ENGINES)):
            lock = needs.lock(options)
            for backend in needs.backends:
                locked_image(lock, needs.image_name(backend), backend, needs.device)
        return _containerised(options, needs, notify)
    except AbsentImageError as error:
        if is_named:
            raise MachineError(f"no engine has the requested image: {error}") from None
        notify(f"not containerised: {error}")
        _name_unapplied(needs.request, notify)
        return local.launcher(local.find(), needs, options, notify, fetch=False)


def _containerised(options: EngineOptions, needs: LaunchRequirements, notify: Notify) -> Launcher:
    """Raises ``AbsentImageError`` with the reason of each engine that can't be used."""
    engines = find_container_engines()
    absent = [facts.name for _, facts in engines if not facts.installed]
    reasons = [f"{', '.join(absent)}: not installed"] if absent else []
    for engine, facts in engines:
        if not facts.installed:
            continue
        try:
            if facts.reason is None:
                return engine.launcher(facts, needs, options, notify, fetch=False)
            reasons.append(facts.reason)
        except AbsentImageError as error:
            reasons.append(str(error))
    raise AbsentImageError("; ".join(dict.fromkeys(reasons)))
