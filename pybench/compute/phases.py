"""Where prefill ends and decode begins in a step."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.model.wire import Step


def phase_cuts_ns(ranks: Sequence[Step]) -> tuple[int, int, int]:
    """Start of a step, the moment when every sequence has its first token, end of the step; of all ``ranks`` together.

    CLOCK_MONOTONIC nanoseconds. Of a step without tokens the first two are equal.
    """
    start_ns, end_ns = min(step.start_ns for step in ranks), max(step.end_ns for step in ranks)
    return start_ns, max((_first_tokens_ns(step) for step in ranks), default=start_ns), end_ns


def _first_tokens_ns(step: Step) -> int:
    if step.requests:
        return max(request.first_token_ns for request in step.requests)
    return step.token_end_ns[0] if step.token_end_ns else step.start_ns
