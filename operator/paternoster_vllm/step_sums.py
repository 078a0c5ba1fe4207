"""Sums over a vLLM's steps from which the operator fits what a step takes; pure, without a clock.

A step lasts from when it is scheduled until its output is in the scheduler. vLLM schedules the next one before that,
so a step begins no earlier than the end of the one before it: no second counts twice, and seconds without a step count
in none. With a decoding sequence in each of them, they are the time between its tokens.
"""

from collections import deque
from collections.abc import Sequence
from operator import add
from typing import Any

PRODUCTS = 21
MOST_UNDER_WAY = 64
"""Steps that are scheduled and have not ended: more than any vLLM has at once."""


def measure_work(output: Any) -> tuple[int, int, int, int]:
    """Prefill tokens, decode sequences, KV tokens that are read, and pairs of prefill token and token of its context.

    ``output``: vLLM's ``SchedulerOutput``. A request with one token, and what was proposed after it, decodes; the
    proposed tokens and all tokens of the others are prefill.
    """
    counts, cached, new = output.num_scheduled_tokens, output.scheduled_cached_reqs, output.scheduled_new_reqs
    total: int = output.total_num_scheduled_tokens
    context = sum(cached.num_computed_tokens) + sum(each.num_computed_tokens for each in new) + total
    if total == len(counts):
        return 0, total, context, 0
    starts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    starts.update((each.req_id, each.num_computed_tokens) for each in new)
    several = [(request_id, count) for request_id, count in counts.items() if count > 1]
    decodes = len(counts) - len(several)
    prefill = pairs = 0
    for request_id, count in several:
        start, stop = starts[request_id], starts[request_id] + count
        if count == 1 + len(output.scheduled_spec_decode_tokens.get(request_id, ())):
            decodes, start = decodes + 1, start + 1
        prefill += stop - start
        pairs += (stop - start) * (start + stop + 1) // 2
    return prefill, decodes, context, pairs


class StepMeter:
    """Sums of the products of (1, prefill tokens, decode sequences, KV tokens, prefill pairs, seconds), pair by pair.

    They are what ``step_sums`` of this project's engine is: the upper triangle row by row.
    """

    def __init__(self) -> None:
        self._total: Sequence[float] = (0,) * PRODUCTS
        self._under_way: deque[tuple[Any, float]] = deque()
        self._ended = 0.0
        self.fault = ""
        """Why steps are measured no more; empty while they are."""

    @property
    def total(self) -> list[float]:
        """The sums; empty where they cannot be measured. Floats, as a whole number beyond 64 bits reaches no server."""
        return [] if self.fault else [float(value) for value in self._total]

    def begin_step(self, output: Any, started: float) -> None:
        """``output`` was scheduled, from ``started`` on."""
        if self.fault:
            return
        self._under_way.append((output, started))
        if len(self._under_way) > MOST_UNDER_WAY:
            self.stop_measuring("this vLLM reports the end of its steps in another way")

    def end_step(self, output: Any, ended: float) -> None:
        """What ``output`` scheduled was computed; those before it that did not end are forgotten."""
        if not any(output is each for each, _ in self._under_way):
            return
        scheduled, started = self._under_way.popleft()
        while scheduled is not output:
            scheduled, started = self._under_way.popleft()
        seconds, self._ended = ended - max(started, self._ended), ended
        try:
            p, d, k, q = measure_work(output)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self.stop_measuring(f"this vLLM's steps are described in another way: {error!r}")
            return
        products = (
            1, p, d, k, q, seconds,
            p * p, p * d, p * k, p * q, p * seconds,
            d * d, d * k, d * q, d * seconds,
            k * k, k * q, k * seconds,
            q * q, q * seconds,
            seconds * seconds,
        )  # fmt: skip
        self._total = tuple(map(add, self._total, products))

    def stop_measuring(self, fault: str) -> None:
        """Report no sums from now on."""
        self.fault = fault
        self._under_way.clear()
