"""Parts of a step, of all its ranks together."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.model.wire import Span, Step


def phase_cuts_ns(ranks: Sequence[Step]) -> tuple[int, int, int]:
    """Start of a step, the moment when every sequence has its first token, end of the step; of all ``ranks`` together.

    CLOCK_MONOTONIC nanoseconds. The first two are equal where prefill and decode are not apart: of a step without
    tokens, and where a sequence ended before another had its first token, as where an engine runs a part at a time.
    """
    start_ns, end_ns = min(step.start_ns for step in ranks), max(step.end_ns for step in ranks)
    cut_ns = max((_first_tokens_ns(step) for step in ranks), default=start_ns)
    first_end_ns = min((request.last_token_ns for step in ranks for request in step.requests), default=end_ns)
    return start_ns, cut_ns if cut_ns <= first_end_ns else start_ns, end_ns


def _first_tokens_ns(step: Step) -> int:
    if step.requests:
        return max(request.first_token_ns for request in step.requests)
    return step.token_end_ns[0] if step.token_end_ns else step.start_ns


def joint_spans(ranks: Sequence[Step]) -> tuple[Span, ...]:
    """Each phase of a step from the first rank's start to the last one's end; ranks have the same phases.

    ``device_bytes`` are the fullest rank's, ``host_bytes`` those of all ranks; ``None`` where no rank knows.
    """
    return tuple(_joint(spans) for spans in zip(*(step.spans for step in ranks), strict=True))


def _joint(spans: Sequence[Span]) -> Span:
    devices = [span.device_bytes for span in spans if span.device_bytes is not None]
    hosts = [span.host_bytes for span in spans if span.host_bytes is not None]
    return Span(
        name=spans[0].name,
        start_ns=min(span.start_ns for span in spans),
        end_ns=max(span.end_ns for span in spans),
        device_bytes=max(devices, default=None),
        host_bytes=sum(hosts) if hosts else None,
    )
