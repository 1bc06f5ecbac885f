"""A suite's ``[container]`` table: valid and refused requests."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model
from pydantic_core import PydanticCustomError

from pybench.files.toml_file import KeyProblem
from pybench.model.container import ContainerRequest, Mount, RelaxationName
from pybench.model.tuning import credentials_in, is_secret

_CONFIG = ConfigDict(strict=True, extra="forbid")
_MAX_ENTRIES = 64
_MAX_VALUE = 4096
# Nothing that a command line, a mount option, an environment file or a terminal reads as more than a letter.
_PATH = re.compile(r"(/[A-Za-z0-9_.+@=%-]+)+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ONE_LINE = re.compile(r"[^\x00-\x1f\x7f]*")
_IMAGE = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,255}$"
# The kernel's own file systems and sockets of daemons: read-only mounts of those still hand over the host.
_FORBIDDEN_SOURCES = ("/proc", "/sys", "/dev", "/run", "/var/run")
_FORBIDDEN_TARGETS = ("/pybench", "/proc", "/sys", "/dev", "/run", "/tmp")  # noqa: S108 - inside the container
# What pybench sets to choose GPUs, and what makes another Python or library of the one in the image.
_RESERVED = frozenset(
    {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HOME", "USER", "RANK", "WORLD_SIZE"}
)


def without_default(schema: dict[str, Any]) -> None:
    """Leave the default out of a field's JSON schema: what is left out has the benchmark's or no value."""
    schema.pop("default", None)


@cache
def container_model() -> type[BaseModel]:
    """The table's shape."""
    path = Annotated[str, AfterValidator(_checked_path)]
    mount = create_model("mount", __config__=_CONFIG, source=(path, ...), target=(path, ...))
    many = Field(max_length=_MAX_ENTRIES)
    name: Any = Annotated[str, AfterValidator(_checked_variable)]
    value: Any = Annotated[str, AfterValidator(_checked_value)]
    fields: dict[str, Any] = {
        "image": Annotated[str, Field(pattern=_IMAGE)],
        "mounts": Annotated[list[mount], many],  # type: ignore[valid-type]
        "environment": Annotated[dict[name, value], many],
        "secrets": Annotated[list[name], many],
        "relax": Annotated[list[RelaxationName], Field(max_length=len(get_args(RelaxationName)))],
    }
    described = {
        key: (
            Annotated[kind, Field(description=_description(key))],
            Field(default=None, json_schema_extra=without_default),
        )
        for key, kind in fields.items()
    }
    return create_model("container", __config__=_CONFIG, **described)  # type: ignore[call-overload, no-any-return]


def container_problems(request: ContainerRequest) -> Iterator[KeyProblem]:
    """Rules about places and names that are each well formed."""
    targets: set[str] = set()
    for index, mount in enumerate(request.mounts):
        source, target = ("container", "mounts", index, "source"), ("container", "mounts", index, "target")
        if inside := forbidden_source(mount.source):
            yield source, f"{mount.source} can't be mounted: {inside} belongs to the host alone"
        if inside := _inside(mount.target, _FORBIDDEN_TARGETS):
            yield target, f"{mount.target} is taken: pybench or the engine mounts {inside} itself"
        if mount.target in targets:
            yield target, f"{mount.target} is the target of an earlier mount"
        targets.add(mount.target)
    for name, value in request.environment.items():
        if is_secret(name, value) or credentials_in(value):
            yield ("container", "environment"), f"{name} holds a credential: name it in secrets instead"
    for key, names in (("environment", request.environment), ("secrets", request.secrets)):
        yield from ((("container", key), f"{name} is set by pybench; remove it") for name in names if name in _RESERVED)


def forbidden_source(path: str) -> str | None:
    """The folder of the host alone that ``path`` lies in; ``None`` where it may be mounted."""
    return _inside(path, _FORBIDDEN_SOURCES)


def container_request(table: dict[str, Any]) -> ContainerRequest:
    """A table of valid shape as a value."""
    return ContainerRequest(
        image=table.get("image"),
        mounts=tuple(Mount(**mount) for mount in table.get("mounts", [])),
        environment=dict(table.get("environment", {})),
        secrets=tuple(table.get("secrets", [])),
        relax=tuple(dict.fromkeys(table.get("relax", []))),
    )


def _inside(path: str, folders: tuple[str, ...]) -> str | None:
    return next((folder for folder in folders if path == folder or path.startswith(f"{folder}/")), None)


def _checked_path(path: str) -> str:
    if not _PATH.fullmatch(path) or posixpath.normpath(path) != path:
        raise PydanticCustomError(
            "path", "a path is absolute, has no . or .. in it, and only letters, digits and _ . + @ = % -", {}
        )
    return path


def _checked_variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise PydanticCustomError(
            "variable", "a variable's name is letters, digits and _, and begins with no digit", {}
        )
    return name


def _checked_value(value: str) -> str:
    if not _ONE_LINE.fullmatch(value) or len(value) > _MAX_VALUE:
        raise PydanticCustomError("value", "a value is one line without control characters", {})
    return value


def _description(key: str) -> str:
    hint = get_type_hints(ContainerRequest, include_extras=True)[key]
    return str(get_args(hint)[-1])
