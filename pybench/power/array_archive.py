"""Arrays in an ``.npz`` file that somebody else may have prepared: sizes are checked before anything is unpacked.

Nothing is evaluated or unpickled: the head of an array is Python source, and is only compared with what numpy writes.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]

# A column of 64-bit integers, or one text.
_HEAD = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(<i8|<u8|<U\d{1,9})', "
    rb"'fortran_order': False, 'shape': \((?:(\d{1,12}),)?\), \} *\n",
    re.DOTALL,
)
# The end of a zip file without a comment, whose directory has a size in 32 bits.
_END = re.compile(rb"PK\x05\x06.{8}(....).{4}\x00\x00", re.DOTALL)
_END_BYTES = 22
_LARGE_END, _LARGE_END_BYTES = b"PK\x06\x07", 20
_MAX_DIRECTORY_BYTES = 2**23


def unpack(data: bytes, max_bytes: int) -> dict[str, Array]:
    """Arrays by name: columns of 64-bit integers, and texts of no dimension, at most ``max_bytes`` together.

    Raises ``ValueError`` for anything else.
    """
    _check_directory(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = _members(archive, max_bytes)
            return {name: _array(name, _content(archive, member)) for name, member in members.items()}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        raise ValueError(str(error)) from error


def _check_directory(data: bytes) -> None:
    """Whoever opens a zip file reads its directory whole."""
    end = _END.fullmatch(data[-_END_BYTES:])
    if end is None or data[-_END_BYTES - _LARGE_END_BYTES :].startswith(_LARGE_END):
        raise ValueError("does not end as a zip file")
    if int.from_bytes(end[1], "little") > _MAX_DIRECTORY_BYTES:
        raise ValueError(f"has a directory of more than {_MAX_DIRECTORY_BYTES} bytes")


def _members(archive: zipfile.ZipFile, max_bytes: int) -> dict[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name in found:
            raise ValueError(f"has {name[:80]!r} twice")
        found[name] = member
    if sum(member.file_size for member in found.values()) > max_bytes:
        raise ValueError(f"unpacks to more than {max_bytes} bytes")
    return found


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    with archive.open(member) as stream:
        # Read without a limit, a member unpacks to more than it declares.
        return stream.read(member.file_size)


def _array(name: str, content: bytes) -> Array:
    head = _HEAD.match(content)
    if head is None:
        raise ValueError(f"{name[:80]!r} is no column of integers and no text")
    kind, length = np.dtype(head[1].decode()), head[2]
    if len(content) - head.end() != kind.itemsize * int(length or 1):
        raise ValueError(f"{name[:80]!r} is cut short or goes on after its end")
    array = np.frombuffer(content, kind, offset=head.end())
    return array if length else array.reshape(())
