"""How long replicas of a fleet take to the first byte of an answer: learnt from their answers. Pure."""

import math

FADE = 0.99
"""Weight of a sample once the next one comes: about the last hundred count."""
MIN_SAMPLES = 8.0
FIRST_SECONDS_PER_TOKEN = 1e-4
"""Before there are samples: any value orders replicas by their tokens."""
LEAST_SECONDS_PER_TOKEN = 1e-7
WORK_SECONDS = 30.0
"""Over which the fleet's utilisation is a mean; older work counts less."""
MAX_UTILISATION = 0.9
"""An estimate above it is no nearer to the truth, and a queue's length would follow from its error alone."""


class ReplicaPace:
    """Least squares of the time to the first byte over what was to be computed before it and the requests beside.

    Samples fade. A slope is never above the ratio of the means, which would have the tokens, or the requests beside,
    explain all of the time.
    """

    def __init__(self) -> None:
        self._weight = 0.0
        self._slopes = 0.0, 0.0
        self._means = 0.0, 0.0, 0.0
        self._moments = 0.0, 0.0, 0.0, 0.0, 0.0
        """Central: xx, xz, zz, xy, zy."""
        self._work = 0.0
        """Seconds of computing prompts that were sent, which fade."""
        self._work_at = 0.0

    @property
    def has_samples(self) -> bool:
        """Whether there are enough to go by."""
        return self._weight >= MIN_SAMPLES

    @property
    def seconds_per_token(self) -> float:
        """What a prompt token that is not cached, its own or one that waits before, adds to the time."""
        slope = self._slopes[0] if self.has_samples else FIRST_SECONDS_PER_TOKEN
        return max(slope, LEAST_SECONDS_PER_TOKEN)

    @property
    def seconds_per_request(self) -> float:
        """What each further request at a replica adds to the time, besides its tokens that wait."""
        return self._slopes[1] if self.has_samples else 0.0

    def expect_seconds(self, tokens: float, beside: int) -> float:
        """The time to the first byte after ``tokens`` are computed, with ``beside`` other requests at the replica."""
        (mean_tokens, mean_beside, mean), (per_token, per_request) = self._means, self._slopes
        return mean + per_token * (tokens - mean_tokens) + per_request * (beside - mean_beside)

    def delay_factor(self, replicas: int, now: float) -> float:
        """How long a second of work delays the requests of a fleet together, at least one: its own and those behind it.

        In a queue that is served in order each second of work takes place before others with the probability that the
        replica is busy, and so do those: 1 / (1 - utilisation).
        """
        utilisation = self._work_now(now) / (WORK_SECONDS * max(1, replicas))
        return 1 / (1 - min(utilisation, MAX_UTILISATION))

    def observe_work(self, tokens: float, now: float) -> None:
        """``tokens`` are to be computed for a request that is sent now."""
        self._work = self._work_now(now) + tokens * self.seconds_per_token
        self._work_at = now

    def _work_now(self, now: float) -> float:
        return self._work * math.exp(min(0.0, self._work_at - now) / WORK_SECONDS)

    def observe_first_byte(self, tokens: float, beside: int, seconds: float) -> None:
        """``tokens``: to compute until then; ``beside``: other requests at the replica when it was sent."""
        self._weight = self._weight * FADE + 1
        share = 1 / self._weight
        (mx, mz, my), (xx, xz, zz, xy, zy), rest = self._means, self._moments, 1 - share
        dx, dz, dy = tokens - mx, beside - mz, seconds - my
        self._means = mx + share * dx, mz + share * dz, my + share * dy
        self._moments = (
            rest * (xx + share * dx * dx),
            rest * (xz + share * dx * dz),
            rest * (zz + share * dz * dz),
            rest * (xy + share * dx * dy),
            rest * (zy + share * dz * dy),
        )
        self._slopes = self._solve_line()

    def _solve_line(self) -> tuple[float, float]:
        (mx, mz, my), (xx, xz, zz, xy, zy) = self._means, self._moments
        most_x, most_z = (my / mx if mx > 0 else 0.0), (my / mz if mz > 0 else 0.0)
        determinant = xx * zz - xz * xz
        if determinant > 1e-6 * xx * zz:
            a, b = (xy * zz - zy * xz) / determinant, (zy * xx - xy * xz) / determinant
            if a < 0 or b < 0:
                a, b = (0.0, zy / zz) if a < 0 else (xy / xx, 0.0)
        else:
            a, b = (xy / xx if xx > 0 else most_x), 0.0
        return min(max(a, 0.0), most_x), min(max(b, 0.0), most_z)
