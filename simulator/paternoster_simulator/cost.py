"""How long a step takes on the hardware of a profile, one step or many at once.

Time is counted in whole picoseconds, so that many steps at once take exactly as long as one by one.
"""

from dataclasses import dataclass
from math import isqrt
from operator import add

from paternoster_engine.core.batch import Batch
from paternoster_engine.core.step_work import StepSums, StepWork

TICKS_PER_SECOND = 10**12
"""Virtual time is an integer number of picoseconds: 50 ns, the price of one KV token, still has three digits."""


def to_ticks(seconds: float) -> int:
    return round(seconds * TICKS_PER_SECOND)


def to_seconds(ticks: int) -> float:
    return ticks / TICKS_PER_SECOND


@dataclass(frozen=True, slots=True)
class StepCost:
    """Picoseconds of a step: a constant, plus what each kind of work in the batch adds.

    A scheduled request with one token that samples is a decode; every other scheduled token is prefill. Attention reads
    the KV of each scheduled request once a step, and a prefill also does work for each pair of token and context.
    """

    fixed: int
    """Weights read once, kernels launched."""
    prefill_token: int = 0
    decode_sequence: int = 0
    kv_token: int = 0
    prefill_pair: int = 0

    def __post_init__(self) -> None:
        if self.fixed < 1:
            raise ValueError(f"fixed is {self.fixed}: must be at least 1, or a step would take no time")
        for name in ("prefill_token", "decode_sequence", "kv_token", "prefill_pair"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: must be at least 0")

    @classmethod
    def from_seconds(
        cls,
        *,
        fixed_seconds: float,
        per_prefill_token_seconds: float = 0.0,
        per_decode_sequence_seconds: float = 0.0,
        per_kv_token_seconds: float = 0.0,
        per_prefill_pair_seconds: float = 0.0,
    ) -> "StepCost":
        return cls(
            fixed=to_ticks(fixed_seconds),
            prefill_token=to_ticks(per_prefill_token_seconds),
            decode_sequence=to_ticks(per_decode_sequence_seconds),
            kv_token=to_ticks(per_kv_token_seconds),
            prefill_pair=to_ticks(per_prefill_pair_seconds),
        )

    def step(self, batch: Batch) -> int:
        """Picoseconds of one step of ``batch``."""
        return self.cost_of(StepWork.from_batch(batch))

    def cost_of(self, work: StepWork) -> int:
        """Picoseconds of one step of so much work."""
        return (
            self.fixed
            + work.decode_sequences * self.decode_sequence
            + work.kv_tokens * self.kv_token
            + work.prefill_tokens * self.prefill_token
            + work.prefill_pairs * self.prefill_pair
        )

    def add_decodes(self, sums: StepSums, sequences: int, context: int, steps: int) -> None:
        """Add ``steps`` pure decode steps to ``sums``; as :meth:`decode` takes them."""
        n, d, k = steps, sequences, context
        time, growth = self.fixed + d * self.decode_sequence + k * self.kv_token, self.kv_token * d
        # Sums of i and of i squared over the steps: context grows by d and time by ``growth`` with each.
        i1, i2 = n * (n - 1) // 2, n * (n - 1) * (2 * n - 1) // 6
        contexts, times = n * k + i1 * d, n * time + i1 * growth
        products = (
            n, 0, n * d, contexts, 0, times,
            0, 0, 0, 0, 0,
            n * d * d, d * contexts, 0, d * times,
            n * k * k + 2 * k * d * i1 + d * d * i2, 0, n * k * time + i1 * (k * growth + d * time) + i2 * d * growth,
            0, 0,
            n * time * time + 2 * time * growth * i1 + growth * growth * i2,
        )  # fmt: skip
        sums.total = tuple(map(add, sums.total, products))

    def decode(self, sequences: int, context: int, steps: int) -> int:
        """Picoseconds of ``steps`` pure decode steps of ``sequences`` requests.

        ``context`` is how many KV tokens the first of them reads; each step reads one more a request.
        """
        first = self.fixed + sequences * self.decode_sequence + context * self.kv_token
        return steps * first + self.kv_token * sequences * (steps * (steps - 1) // 2)

    def count_started(self, sequences: int, context: int, elapsed: int) -> int:
        """How many of those steps have started ``elapsed`` picoseconds after the first began; at least 1.

        The largest n with ``decode(n - 1) <= elapsed``: a step that starts right now has started.
        """
        first = self.fixed + sequences * self.decode_sequence + context * self.kv_token
        growth = self.kv_token * sequences
        if growth == 0:
            return elapsed // first + 1
        linear = 2 * first - growth
        return (isqrt(linear * linear + 8 * growth * elapsed) - linear) // (2 * growth) + 1
