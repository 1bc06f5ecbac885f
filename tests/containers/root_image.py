"""An image made of this machine's own Python: what a container needs to run the worker, and nothing else.

Written byte by byte, so that the same Python gives the same digests under every engine. Packages are not in it: a suite
mounts them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import platform
import re
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_LIBRARY = Path(sys.base_prefix, "lib", PYTHON)
_DEBIANS_OWN = "dist-packages" in (_LIBRARY / "site.py").read_text(encoding="utf-8")
_PACKAGES = "dist-packages" if _DEBIANS_OWN else "site-packages"
SITE = f"/usr/local/lib/{PYTHON}/{_PACKAGES}"
"""Where a suite mounts packages."""
INTERPRETER = "/usr/bin/python3"
LABELS = {"org.opencontainers.image.title": "pybench-test"}

_LEFT_OUT = {
    *("site-packages", "dist-packages", "test", "tests", "__pycache__"),
    *("ensurepip", "idlelib", "lib2to3", "pydoc_data", "tkinter", "turtledemo"),
}
_LEFT_OUT_MODULES = ("_test", "_tkinter.")
_FOLDERS = ("dev", "etc", "proc", "sys", "tmp", "run", "mnt", SITE.lstrip("/"))
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(archive: Path, tag: str, extensions: Iterable[Path] = ()) -> str:
    """Write an archive that ``docker load`` and ``podman load`` take; returns the image's config digest.

    ``extensions`` are shared objects whose own libraries must be there, too.
    """
    layer = _layer(extensions)
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Labels": LABELS, "Env": ["PATH=/usr/local/bin:/usr/bin"], "Entrypoint": ["/nonexistent"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "pybench tests"}],
            "created": "1970-01-01T00:00:00Z",
        }
    ).encode()
    digest = hashlib.sha256(config).hexdigest()
    manifest = json.dumps([{"Config": f"{digest}.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as out:
        for name, data in ((f"{digest}.json", config), ("layer.tar", layer), ("manifest.json", manifest)):
            _add(out, name, data)
    return f"sha256:{digest}"


def _layer(extensions: Iterable[Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for folder in sorted(
            {str(parent) for name in _FOLDERS for parent in (Path(name), *Path(name).parents)} - {"."}
        ):
            _add(out, folder, None, mode=0o1777 if folder == "tmp" else 0o755)
        real = Path(sys.base_prefix, "bin", PYTHON).resolve()
        _add(out, f"usr/local/bin/{PYTHON}", real.read_bytes(), mode=0o755)
        _link(out, INTERPRETER.lstrip("/"), f"/usr/local/bin/{PYTHON}")
        modules = list(_modules(_LIBRARY))
        for path in modules:
            relative = path.relative_to(Path(sys.base_prefix, "lib"))
            _add(out, f"usr/local/lib/{relative}", path.read_bytes(), mode=0o644)
            if compiled := _compiled(path):
                cached = relative.parent / "__pycache__" / Path(importlib.util.cache_from_source(path)).name
                _add(out, f"usr/local/lib/{cached}", compiled, mode=0o644)
        _libraries(out, [real, *(path for path in modules if path.suffix == ".so"), *extensions])
    return buffer.getvalue()


def _modules(library: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(library):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        for name in sorted(files):
            if not name.endswith(".a") and not name.startswith(_LEFT_OUT_MODULES):
                yield Path(parent, name)


def _compiled(module: Path) -> bytes | None:
    """This machine's bytecode of a module, valid at any time of its source; None where there is none.

    Without it, each worker compiles all that it imports of the standard library.
    """
    cached = Path(importlib.util.cache_from_source(module))
    if module.suffix != ".py" or not cached.exists():
        return None
    code, source = cached.read_bytes(), module.stat()
    # PEP 552: a magic number, flags, then the source's time and size; or, with flag 1, its hash, never looked at.
    stamped = (0, int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF)
    if struct.unpack("<III", code[4:16]) != stamped:
        return None
    return code[:4] + struct.pack("<I", 1) + importlib.util.source_hash(module.read_bytes()) + code[16:]


def _libraries(out: tarfile.TarFile, objects: Iterable[Path]) -> None:
    """Every library that ``objects`` are linked to, where this machine's loader looks without a cache."""
    said = subprocess.run(["ldd", *map(str, objects)], capture_output=True, text=True, check=False).stdout
    found = dict(re.findall(r"(\S+) => (/\S+) \(", said))
    loaders = set(re.findall(r"^\s+(/\S*ld-linux\S*) \(", said, re.MULTILINE))
    home = str(Path(found["libc.so.6"]).resolve().parent).lstrip("/")
    for name, path in sorted(found.items()):
        if not any(part in path for part in ("/torch/", "/numpy", "site-packages")):
            _add(out, f"{home}/{name}", Path(path).read_bytes(), mode=0o755)
    for loader in sorted(loaders):
        _add(out, loader.lstrip("/"), Path(loader).read_bytes(), mode=0o755)


def _add(out: tarfile.TarFile, name: str, data: bytes | None, *, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.mode = mode
    member.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
    member.size = len(data or b"")
    out.addfile(member, io.BytesIO(data) if data else None)


def _link(out: tarfile.TarFile, name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    out.addfile(member)
