"""A load of known square waves on one GPU: matrix products, then nothing, again and again.

``python -m pybench.worker.backends.common_torch.square_load SCHEDULE`` with a JSON list of ``[on_s, off_s, length_s]``.
Writes, when all is over, one JSON list of the spans in which the GPU worked, CLOCK_MONOTONIC ns.
"""

from __future__ import annotations

import json
import sys
import time

from pybench.worker.process import die_with_parent

SIZE = 4096
# Number of products that are queued between two waits: some tenths of a millisecond on a large GPU.
NUM_QUEUED = 4
WARM_S = 3.0


def main() -> None:
    """Run the schedule on the first visible GPU."""
    die_with_parent()
    import torch

    left = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    right = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(left)

    def work(until_ns: int) -> None:
        while time.monotonic_ns() < until_ns:
            for _ in range(NUM_QUEUED):
                torch.matmul(left, right, out=out)
            torch.cuda.synchronize()

    work(time.monotonic_ns() + int(WARM_S * 1e9))
    spans: list[tuple[int, int]] = []
    for on_s, off_s, length_s in json.loads(sys.argv[1]):
        begun_ns = time.monotonic_ns()
        for number in range(int(length_s / (on_s + off_s))):
            start_ns = begun_ns + int(number * (on_s + off_s) * 1e9)
            time.sleep(max(0.0, (start_ns - time.monotonic_ns()) / 1e9))
            start_ns = time.monotonic_ns()
            work(start_ns + int(on_s * 1e9))
            spans.append((start_ns, time.monotonic_ns()))
    sys.stdout.write(json.dumps(spans) + "\n")


if __name__ == "__main__":
    main()
