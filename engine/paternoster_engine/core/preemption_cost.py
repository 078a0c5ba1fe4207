"""What a preemption costs either way, from what steps and copies were measured to take."""

from dataclasses import dataclass

DECAY = 0.98
"""Weight of a measurement after the next one: about fifty of them count."""
MIN_STEPS = 8
"""Steps seen before their slope means anything."""


@dataclass(slots=True)
class PreemptionCost:
    """Marginal seconds of a computed token and seconds of a copied block, fed by whoever runs the batches."""

    seconds_per_block: float | None = None
    """Copying one block in one direction; None before the first copy."""
    _steps: int = 0
    _weight: float = 0.0
    _x: float = 0.0
    _y: float = 0.0
    _xx: float = 0.0
    _xy: float = 0.0

    @property
    def seconds_per_token(self) -> float | None:
        """Slope of step seconds over step tokens: what one more token adds to a step; None while it is not known."""
        spread = self._weight * self._xx - self._x * self._x
        if self._steps < MIN_STEPS or spread <= 1e-9 * self._weight * self._xx:
            return None
        return max(0.0, (self._weight * self._xy - self._x * self._y) / spread)

    def observe_step(self, num_tokens: int, seconds: float) -> None:
        self._steps += 1
        self._weight = DECAY * self._weight + 1
        self._x = DECAY * self._x + num_tokens
        self._y = DECAY * self._y + seconds
        self._xx = DECAY * self._xx + num_tokens * num_tokens
        self._xy = DECAY * self._xy + num_tokens * seconds

    def observe_copy(self, num_blocks: int, seconds: float) -> None:
        each = seconds / num_blocks
        previous = self.seconds_per_block
        self.seconds_per_block = each if previous is None else DECAY * previous + (1 - DECAY) * each

    def swap_is_cheaper(self, num_tokens: int, num_blocks: int) -> bool:
        """Whether copying ``num_blocks`` out and in again beats computing ``num_tokens`` again.

        Copies that were never measured are tried; with no slope yet, a victim is recomputed.
        """
        per_token, per_block = self.seconds_per_token, self.seconds_per_block
        if per_token is None:
            return False
        return per_block is None or 2 * num_blocks * per_block < num_tokens * per_token
