"""What was learnt of one replica and its requests: memory a sequence, tokens an answer, and the pace under load.

Within a step every sequence waits for all others, and the prompts that come while it decodes share its steps, so the
time between two tokens is a line in the number of sequences: ``itl(n) = base + slope * n``. (With ``r`` requests a
second, prompts of ``P`` tokens at ``p`` seconds each and ``O`` output tokens, a step takes ``t = a + b n + r P p t``,
and by Little's law ``n = r O t``: hence ``t = a + (b + P p / O) n``.) The line is fitted by least squares over sums
that fade, so that it follows the traffic.
"""

from dataclasses import dataclass
from typing import Self

from paternoster_operator.autoscaling.signals import Signals

FURTHEST = 4.0
"""Times the sequences seen up to which the line is followed."""
HALF_LIFE_SECONDS = 600.0
"""Age at which an observation counts half: longer than a burst, shorter than a change of the time of day."""
MIN_SEQUENCES = 1.0
"""Replicas that carry less say nothing: their share of KV and their pace are those of single requests."""
SHORT = 0.5
"""Share of the KV pool in use above which sequences larger than remembered count at once: memory is then what may run
out first, and the average of ten minutes would learn of it too late. Below it the few that are left after a burst,
which are the longest, would pass for all."""
ENOUGH = 6.0
"""Observations (replica-looks) below which nothing is concluded: half a minute of one replica."""
ENOUGH_ANSWERS = 50.0
"""Answers below which their mean length is not relied upon: lengths spread as much as their mean."""
PRIOR_WEIGHT = 0.02
"""Weight of the prior slope against the spread of what was seen: it rules while all observations are at one load.
The prior is half of the latency growing with the load, the other half standing: between a machine bound by memory
and one bound by arithmetic."""


@dataclass(frozen=True, slots=True)
class Experience:
    """Fading sums over replicas and time."""

    weight: float = 0.0
    running: float = 0.0
    kv_usage: float = 0.0
    paced: float = 0.0
    """Weight of the observations that told a pace."""
    n: float = 0.0
    itl: float = 0.0
    nn: float = 0.0
    n_itl: float = 0.0
    answers: float = 0.0
    tokens: float = 0.0

    def observe(self, signals: Signals, elapsed: float) -> Self:
        """Take in a look, ``elapsed`` seconds after the one before."""
        fade = 0.5 ** (max(elapsed, 0.0) / HALF_LIFE_SECONDS)
        busy = [load for load in signals.replicas if load.running >= MIN_SEQUENCES]
        running, kv_usage = sum(load.running for load in busy), sum(load.kv_usage for load in busy)
        remembered = self.kv_usage
        if self.running and kv_usage > SHORT * len(busy):
            remembered = max(remembered, kv_usage / running * self.running)
        paced = [(load.running, itl) for load in busy if (itl := load.inter_token_seconds) is not None]
        return type(self)(
            weight=self.weight * fade + len(busy),
            running=self.running * fade + running,
            kv_usage=remembered * fade + kv_usage,
            paced=self.paced * fade + len(paced),
            n=self.n * fade + sum(n for n, _ in paced),
            itl=self.itl * fade + sum(itl for _, itl in paced),
            nn=self.nn * fade + sum(n * n for n, _ in paced),
            n_itl=self.n_itl * fade + sum(n * itl for n, itl in paced),
            answers=self.answers * fade + signals.departed,
            tokens=self.tokens * fade + signals.generated,
        )

    @property
    def tokens_per_answer(self) -> float | None:
        """Output tokens of a request, on average; None while unknown."""
        return self.tokens / self.answers if self.answers >= ENOUGH_ANSWERS else None

    @property
    def kv_per_sequence(self) -> float | None:
        """Share of a replica's KV blocks that one running sequence holds, on average; None while unknown."""
        if self.weight < ENOUGH or self.kv_usage <= 0:
            return None
        return self.kv_usage / self.running

    @property
    def line(self) -> tuple[float, float] | None:
        """(base, slope) in seconds and seconds per sequence; None while unknown."""
        if self.paced < ENOUGH:
            return None
        mean_n, mean_itl = self.n / self.paced, self.itl / self.paced
        prior = PRIOR_WEIGHT * mean_n * mean_n
        spread = self.nn / self.paced - mean_n * mean_n
        together = self.n_itl / self.paced - mean_n * mean_itl
        slope = (together + prior * 0.5 * mean_itl / mean_n) / (spread + prior)
        slope = min(max(slope, 0.0), mean_itl / mean_n)
        return mean_itl - slope * mean_n, slope

    def pace(self, running: float) -> float | None:
        """Seconds between two tokens with so many sequences at once; None while unknown."""
        line = self.line
        return None if line is None else line[0] + line[1] * running

    def most_within(self, itl_seconds: float) -> float | None:
        """Most sequences at once that keep the time between two tokens within a limit; None while unknown.

        No more than four times what was seen: further out the line is a guess.
        """
        line = self.line
        if line is None:
            return None
        base, slope = line
        furthest = FURTHEST * (self.nn / self.paced) ** 0.5
        spare = max(itl_seconds - base, 0.0)
        return furthest if slope * furthest <= spare else spare / slope
