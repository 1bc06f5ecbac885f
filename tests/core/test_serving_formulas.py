"""Goodput and the steady window, by hand."""

from __future__ import annotations

import pytest

from pybench.core.generate_metrics import num_good, steady_tokens, steady_window_ns
from pybench.model.wire import RequestTimes, Step, Work
from pybench.model.workloads.generate import Generate

S = 1_000_000_000


def request(arrival_s: float, first_s: float, last_s: float, tokens: int = 11) -> RequestTimes:
    first, last = round(first_s * S), round(last_s * S)
    return RequestTimes(
        arrival_ns=round(arrival_s * S), first_token_ns=first, last_token_ns=last, prompt_tokens=8, output_tokens=tokens
    )


def settings(**changes: object) -> Generate:
    usual = {"backend": "server", "server": "stub", "model": "m", "batch_size": 4, "prompt_tokens": 8}
    return Generate(**{**usual, "output_tokens": 11, **changes})  # type: ignore[arg-type]


def step(*requests: RequestTimes) -> Step:
    return Step(index=0, phase="measure", start_ns=0, end_ns=10 * S, work=Work(), requests=requests)


# Two at a time; each decodes 10 gaps in 1 s.
LANES = (request(0, 1, 2), request(0, 1.5, 2.5), request(2, 3, 4), request(2.5, 3.5, 4.5))


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        ({"ttft_limit_s": 1.0}, 3),
        ({"tpot_limit_s": 0.1}, 4),
        ({"tpot_limit_s": 0.09}, 0),
        ({"e2e_limit_s": 2.0}, 3),
        ({"ttft_limit_s": 2.0, "e2e_limit_s": 2.0}, 3),
        ({"ttft_limit_s": 0.9, "e2e_limit_s": 0.9}, 0),
    ],
)
def test_goodput_keeps_every_limit(limits: dict[str, float], good: int) -> None:
    """The second request waits 1.5 s for its first token, and 2.5 s in all."""
    assert num_good(settings(**limits), LANES) == good


def test_a_closed_loop_is_steady_between_its_ramps() -> None:
    """From the first token of the last of the first two, 1.5 s, to the last arrival, 2.5 s."""
    window = steady_window_ns(settings(concurrency=2), [step(*LANES)])
    assert window == (1_500_000_000, 2_500_000_000)
    # 5 of the first one's gaps, the second one's first token and 10 gaps.
    assert steady_tokens([step(*LANES)], window) == pytest.approx(5 + 1 + 10)


def test_an_open_loop_is_steady_from_the_first_end() -> None:
    """2.0 s to 2.5 s: of the second request 5 gaps."""
    window = steady_window_ns(settings(request_rate_per_s=1.0), [step(*LANES)])
    assert window == (2_000_000_000, 2_500_000_000)
    assert steady_tokens([step(*LANES)], window) == pytest.approx(5)


def test_a_load_that_never_is_steady_has_no_window() -> None:
    """A batch begins together; a few requests end before the last one comes, or all come at once."""
    assert steady_window_ns(settings(), [step(*LANES)]) is None
    assert steady_window_ns(settings(concurrency=4), [step(*LANES)]) is None
    assert steady_window_ns(settings(concurrency=2), [step()]) is None
