"""The lock of container images: read strictly, written in one canonical form."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, create_model

from pybench.files.shipped import shipped_folder
from pybench.files.suite.schema import NAME_PATTERN, checked, fields_of
from pybench.files.toml_file import KeyProblem, faults, message_of, read_toml, refuse
from pybench.model.container import ImageLock, LockedImage, PlatformDigests
from pybench.model.errors import MachineError, UsageError, is_machine_fault
from pybench.model.machine import DeviceKind

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HEX_DIGITS = 64
# A SHA-256 in hex shows 15 or 16 of the 16 digits; below ten, somebody typed it.
_MIN_DISTINCT_DIGITS = 10
# registry[:port]/path, as the OCI distribution specification has it; no tag, no digest, nothing a shell would notice.
_REPOSITORY = r"^[a-z0-9]+([.-][a-z0-9]+)*(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$"
_TAG = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
_VERSION = r"^[0-9]+(\.[0-9]+){0,3}$"
# A hidden folder may be in a path, . and .. may not.
_ABSOLUTE = r"^(/\.?[A-Za-z0-9_][A-Za-z0-9_.-]*)+$"
_PLATFORM = r"^linux/(amd64|arm64)$"
_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_HEADER = """\
# Container images by digest, for `pybench run`. Written by `pybench images lock`; edits keep this form.
# Without verified_by the digests are what independent public repositories recorded, not yet confirmed by a registry:
#
#     pybench images verify

schema = 1
"""


def default_lock() -> Path:
    """The lock that comes with pybench."""
    return shipped_folder("containers") / "images.toml"


def digest_problem(digest: str) -> str | None:
    """Why ``digest`` can't be a real one, ``None`` when it can."""
    if not _DIGEST.fullmatch(digest):
        return "a digest is sha256: and 64 lower-case hex digits"
    digits = digest.removeprefix("sha256:")
    periods = range(1, _HEX_DIGITS // 2 + 1)
    if len(set(digits)) < _MIN_DISTINCT_DIGITS or any(digits[p:] == digits[:-p] for p in periods):
        return "a placeholder, not the digest of anything; `pybench images lock` finds the real one"
    return None


def read_lock(path: Path) -> ImageLock:
    """Read a lock file. Raises ``FileError`` with all its problems."""
    document, check = read_toml(path, "an image lock")
    check("schema", _problems(document))
    check("rule", _cross_problems(document))
    images = []
    for values in document["image"]:
        platforms = {name: PlatformDigests(**digests) for name, digests in values["platforms"].items()}
        images.append(LockedImage(**{**values, "platforms": platforms, "backends": tuple(values["backends"])}))
    return ImageLock(path=str(path), images=tuple(images))


def write_lock(lock: ImageLock) -> None:
    """Write ``lock`` to its path, whole or not at all. Raises ``FileError``, ``OSError`` on a faulty disk."""
    path = Path(lock.path)
    scratch = path.with_name(path.name + ".new")
    try:
        scratch.write_text(lock_text(lock), encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        if is_machine_fault(error):
            scratch.unlink(missing_ok=True)
            raise
        raise refuse(path, f"can't be written: {error.strerror}") from error


def lock_text(lock: ImageLock) -> str:
    """The file that :func:`read_lock` reads back to ``lock``. Unknown values are left out."""
    tables = []
    for image in lock.images:
        platforms = {
            platform: {key: digest for key, digest in vars(digests).items() if digest is not None}
            for platform, digests in image.platforms.items()
        }
        values = {name: value for name, value in vars(image).items() if value is not None and value != ""}
        tables.append({**values, "platforms": platforms})
    return f"{_HEADER}\n{tomli_w.dumps({'image': tables})}"


_Digest = checked(str, digest_problem)

_PATTERNS = {
    "name": NAME_PATTERN,
    "repository": _REPOSITORY,
    "tag": _TAG,
    "python": _VERSION,
    "interpreter": _ABSOLUTE,
    "cuda": _VERSION,
    "minimum_driver": _VERSION,
    "dockerfile": NAME_PATTERN,
}


@cache
def _lock_model() -> type[BaseModel]:
    digest: Any = (_Digest | None, None)
    digests: Any = create_model("platform", __config__=_CONFIG, manifest=digest, config=digest)
    fields: dict[str, Any] = {name: (kind | None, None) for name, kind in fields_of(LockedImage).items()}
    for name, pattern in _PATTERNS.items():
        kind: Any = Annotated[str, Field(pattern=pattern)]
        fields[name] = (kind, ...) if name in {"name", "repository", "tag"} else (kind | None, None)
    fields["backends"] = (list[Annotated[str, Field(pattern=NAME_PATTERN)]], ...)
    fields["platforms"] = (dict[Annotated[str, Field(pattern=_PLATFORM)], digests], ...)
    fields["index_digest"] = digest
    image: Any = create_model("image", __config__=_CONFIG, **fields)
    version: Any = (Annotated[int, Field(ge=1, le=1)], Field(alias="schema", description="version of this format"))
    return create_model("image_lock", __config__=_CONFIG, schema_version=version, image=(list[image], ...))


def _problems(document: dict[str, Any]) -> Iterator[KeyProblem]:
    for fault in faults(_lock_model(), document):
        keys = ["schema", "image"] if len(fault["loc"]) == 1 else list(LockedImage.__dataclass_fields__)
        message = message_of(fault, keys)
        if fault["type"] == "string_pattern_mismatch":
            message = f"found {fault['input']!r}, which doesn't match {fault['ctx']['pattern']}"
        yield fault["loc"], message


def _cross_problems(document: dict[str, Any]) -> Iterator[KeyProblem]:
    """Rules across keys: each name once, each digest once, no tag without a digest."""
    names: set[str] = set()
    owners: dict[str, str] = {}
    for index, image in enumerate(document["image"]):
        if image["name"] in names:
            yield ("image", index, "name"), f"{image['name']!r} is the name of an earlier image"
        names.add(image["name"])
        pairs = [(("index_digest",), image.get("index_digest"))] + [
            (("platforms", platform, key), digest)
            for platform, digests in image["platforms"].items()
            for key, digest in digests.items()
        ]
        given = [(keys, digest) for keys, digest in pairs if digest is not None]
        if not given:
            yield ("image", index, "tag"), f"tag {image['tag']!r} without a digest; `pybench images lock` resolves it"
        for keys, digest in given:
            if digest in owners:
                message = f"the digest of {owners[digest]}, too: an index and its platforms have one each"
                yield ("image", index, *keys), message
            owners.setdefault(digest, f"{image['name']} {'.'.join(map(str, keys))}")


_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class AbsentImageError(MachineError):
    """The image is not on this machine: ``--engine auto`` tries the next engine, a named engine reports it."""


def this_platform() -> str:
    """This machine's platform as images name it, such as ``linux/amd64``."""
    machine = platform.machine()
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def locked_image(lock: ImageLock, name: str | None, backend: str, device: DeviceKind) -> LockedImage:
    """The image called ``name``, else the one that serves ``backend``. Raises ``MachineError`` when there is none."""
    here = this_platform()
    image = lock.named(name) if name else lock.serving(backend, here, device)
    if image is None:
        raise AbsentImageError(f"{lock.path} has no image for backend {backend} on {device}, {here}")
    if not image.references(here):
        has = ", ".join(image.platforms)
        raise MachineError(f"image {image.name} is locked for {has or 'no platform'}, this machine is {here}")
    return image


def chosen(lock: ImageLock, names: tuple[str, ...]) -> tuple[LockedImage, ...]:
    """The images called ``names``; all of them without a name. Raises ``UsageError`` with the known names."""
    known = {image.name: image for image in lock.images}
    for name in names:
        if name not in known:
            raise UsageError(f"{lock.path} has no image {name!r}; it has {', '.join(known) or 'none'}")
    return tuple(known[name] for name in names) if names else lock.images
