"""What a step computes, and sums over steps from which their cost can be fitted."""

from dataclasses import dataclass
from operator import add

from paternoster_engine.core.batch import Batch

NUM_PRODUCTS = 21
"""Products of two of the six numbers of a step, each pair once."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """What one batch computes.

    A token that samples is a decode, with proposals or without; every other scheduled token is prefill.
    """

    prefill_tokens: int = 0
    decode_sequences: int = 0
    kv_tokens: int = 0
    """Tokens of context that attention reads, once for each scheduled request."""
    prefill_pairs: int = 0
    """Pairs of prefilled token and token of its context."""

    @classmethod
    def from_batch(cls, batch: Batch) -> "StepWork":
        prefill = decode = context = pairs = 0
        for _, start, count, samples, proposed in batch.scheduled:
            stop = start + count
            context += stop
            if samples and count == 1 + len(proposed):
                decode += 1
                start, count = start + 1, count - 1
            if count:
                prefill += count
                pairs += count * (start + stop + 1) // 2
        return cls(prefill, decode, context, pairs)


@dataclass(slots=True)
class StepSums:
    """Sums of the products of (1, prefill tokens, decode sequences, KV tokens, prefill pairs, time), pair by pair.

    ``total`` is the upper triangle row by row, so it begins with the number of steps. It is all that a least-squares
    fit of the time needs, and it only grows. Another thread may read it: it is replaced whole.
    """

    total: tuple[float, ...] = (0,) * NUM_PRODUCTS

    def add(self, work: StepWork, time: float) -> None:
        """Take in a step that took ``time``, in the unit of the scheduler's clock."""
        p, d, k, q = work.prefill_tokens, work.decode_sequences, work.kv_tokens, work.prefill_pairs
        products = (
            1, p, d, k, q, time,
            p * p, p * d, p * k, p * q, p * time,
            d * d, d * k, d * q, d * time,
            k * k, k * q, k * time,
            q * q, q * time,
            time * time,
        )  # fmt: skip
        self.total = tuple(map(add, self.total, products))

    def in_seconds(self, ticks_per_second: int) -> tuple[float, ...]:
        """``total``, of whole numbers of ticks, with the time in seconds."""
        # Time is the last of each row, and the last row is its square alone.
        last = NUM_PRODUCTS - 1
        timed = {5, 10, 14, 17, 19}
        return tuple(
            value / ticks_per_second**2 if i == last else value / ticks_per_second if i in timed else value
            for i, value in enumerate(self.total)
        )
