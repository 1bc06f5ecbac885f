"""Times inside one step that a rank reports: of tokens, requests and phases. What is wrong raises ``ValueError``."""

from __future__ import annotations

from itertools import pairwise

from pybench.model.wire import Step
from pybench.run.events.breach import require

# Times of tokens and requests come from an engine's own stamps, or from a GPU's clock.
_STAMP_SLACK_NS = 5_000_000


def check_stamps(rank: int, step: Step) -> None:
    """Times of tokens and requests are ordered, and inside the step."""
    low_ns, high_ns = step.start_ns - _STAMP_SLACK_NS, step.end_ns + _STAMP_SLACK_NS
    ends = step.token_end_ns
    in_step = not ends or (low_ns <= ends[0] and ends[-1] <= high_ns)
    ordered = all(earlier <= later for earlier, later in pairwise(ends))
    require(in_step and ordered, rank, "step.token_end_ns", "is out of order or outside the step")
    for request in step.requests:
        stamps = (low_ns, request.arrival_ns, request.first_token_ns, request.last_token_ns, high_ns)
        ordered = all(earlier <= later for earlier, later in pairwise(stamps))
        require(ordered, rank, "step.requests", "has times out of order or outside the step")
        counted = request.prompt_tokens > 0 and request.output_tokens > 0
        require(counted, rank, "step.requests", "has a request without tokens")


def check_spans(rank: int, step: Step, phases: tuple[str, ...]) -> None:
    """Parts of the step are the ``phases`` of its order, follow each other, and lie inside the step."""
    others = [span.name[:80] for span in step.spans if span.name not in phases]
    require(not others, rank, "step.spans.name", f"{''.join(others[:1])} is no phase of the order")
    require(tuple(span.name for span in step.spans) == phases, rank, "step.spans", "are not the order's phases")
    times = (step.start_ns, *(ns for span in step.spans for ns in (span.start_ns, span.end_ns)), step.end_ns)
    ordered = all(earlier <= later for earlier, later in pairwise(times))
    require(ordered, rank, "step.spans", "has parts out of order or outside the step")
    require(all(span.start_ns < span.end_ns for span in step.spans), rank, "step.spans", "has a part without length")
    amounts = [amount for span in step.spans for amount in (span.device_bytes, span.host_bytes)]
    require(all(amount is None or amount >= 0 for amount in amounts), rank, "step.spans", "has negative bytes")
