"""A Python whose rank 1 computes wrong products, as a faulty GPU does: it stands where ``--python`` names one."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

_SCRIPT = """#!/bin/sh
exec "{python}" -I -B "{module}" {after} "$@"
"""


def faulty_python(folder: Path, after: int = 0) -> Path:
    """A program in ``folder`` that runs workers; in rank 1 one bit of each product flips, from number ``after`` on."""
    program = folder / "faulty-python"
    program.write_text(_SCRIPT.format(python=sys.executable, module=__file__, after=after))
    program.chmod(0o755)
    return program


def _flip_bits(after: int) -> None:
    import torch  # noqa: PLC0415 - the host asks this Python for versions first, without torch

    multiply, num_products = torch.Tensor.__matmul__, 0

    def wrong(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        nonlocal num_products
        product: torch.Tensor = multiply(left, right)
        num_products += 1
        if os.environ.get("RANK") == "1" and num_products > after:
            product.data.view(torch.uint8).view(-1)[product.element_size() - 2] ^= 1 << 5
        return product

    torch.Tensor.__matmul__ = wrong  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    _, number, *arguments = sys.argv
    if arguments[:2] != ["-I", "-B"] or arguments[2] == "-c":
        os.execv(sys.executable, [sys.executable, *arguments])
    _flip_bits(int(number))
    sys.argv = arguments[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
