"""Whether hosts are alike enough to measure together, and in one line each what is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from pybench.model.container import ImageIdentity
from pybench.model.host import Host
from pybench.model.plural import counted

WALL_CLOCK_LIMIT_S = 5.0
"""Logs and the driver's errors are matched by the wall clock; hosts under NTP agree to milliseconds."""
_SHOWN_DIGITS = 12


def unlike(hosts: Sequence[Host], wall_offsets_s: Sequence[float]) -> tuple[str, ...]:
    """One line for every way in which a host differs from the first; none where all are alike.

    ``wall_offsets_s`` are each host's wall clock less the first one's, in s.
    """
    first, *others = hosts
    lines = list(twice(hosts))
    for host, wall_s in zip(others, wall_offsets_s[1:], strict=True):
        lines += _lines(first, host)
        if abs(wall_s) > WALL_CLOCK_LIMIT_S:
            ahead = "ahead of" if wall_s > 0 else "behind"
            lines.append(
                f"host {host.name}: its wall clock is {abs(wall_s):.0f} s {ahead} that of {first.name}; "
                "have NTP set both (timedatectl set-ntp true)"
            )
    return tuple(lines)


def unlike_images(
    first: str, wanted: Sequence[ImageIdentity], host: str, found: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """A line for each image that is another one on ``host`` than on the host ``first``, which has those ``wanted``.

    ``found`` are the digests that name each backend's image there.
    """
    for image in wanted:
        there = found.get(image.backend, ())
        if not {*there}.intersection(image.known_by):
            yield (
                f"host {host}: image {image.name} is {_short(there)}, {first} has {_short(image.known_by)}; "
                f"give both the same --lock, and fetch it: pybench images pull {image.name}"
            )


def _short(digests: Sequence[str]) -> str:
    return digests[0][: len("sha256:") + _SHOWN_DIGITS] if digests else "none"


def twice(hosts: Sequence[Host]) -> Iterator[str]:
    """A line for each name that several hosts have."""
    for name, count in Counter(host.name for host in hosts).items():
        if count > 1:
            yield f"{count} hosts are called {name}; give each its own with PYBENCH_HOST_NAME"


def on_one_device(locks: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """A line for each two hosts, given by name and ``locks`` of their devices, that would measure on one device."""
    for (first, held), (second, wanted) in combinations(locks, 2):
        if shared := {*held}.intersection(wanted):
            yield (
                f"hosts {first} and {second} are one machine and share {min(shared).rpartition('/')[2]}; give each its "
                "own GPUs (CUDA_VISIBLE_DEVICES) or cores (taskset)"
            )


def _lines(first: Host, host: Host) -> Iterator[str]:
    for noun, here, there, remedy in _compared(first, host):
        if here != there:
            yield f"host {host.name}: {noun} {there or 'none'}, {first.name} has {here or 'none'}; {remedy}"


def _compared(first: Host, host: Host) -> Iterator[tuple[str, str, str, str]]:
    """Noun, value on the first host, value on the other, remedy."""
    same = "install the same on both"
    yield "pybench", first.pybench_version, host.pybench_version, same
    if first.pybench_version == host.pybench_version:
        digests = first.worker_sha256[:12], host.worker_sha256[:12]
        yield "worker's source", *digests, "install the same build of pybench on both"
    yield "driver", first.machine.driver or "", host.machine.driver or "", same
    yield "GPUs", _gpus(first), _gpus(host), "use hosts with the same GPUs"
    yield (
        "network",
        first.machine.network or "",
        host.machine.network or "",
        "make the ports of their cards active, or set NCCL_IB_DISABLE=1 on all",
    )
    yield "engine", first.engine, host.engine, "name one with --engine on both"
    here, there = _packages(first), _packages(host)
    for name in sorted({*here, *there}):
        yield f"package {name}", here.get(name, ""), there.get(name, ""), "install the same on both, or give --python"


def _gpus(host: Host) -> str:
    return counted(sorted(gpu.name for gpu in host.machine.gpus))


def _packages(host: Host) -> dict[str, str]:
    software = host.software
    return {} if software is None else {"python": software.python, **software.packages}
