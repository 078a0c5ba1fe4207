"""For how long a step may last until the engine counts as hung, by the steps of its size that were."""

STEPS = 20
"""Longest steps of that size that a step may last."""
LEAST_SECONDS = 8.0
"""A machine with other work may stop any process for seconds."""
DECAY = 0.98
"""What the longest step of a size counts for after each further one."""


class StallLimit:
    """Limits for steps of each size, from one power of two tokens to the next.

    A long step of prompts has a long limit, as one like it took long before. The first step of a size has none: it may
    compile, or be far larger than any before.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        """Limit of the last step; None where none of its size was measured. Another thread reads it."""
        self._longest: dict[int, float] = {}

    def begin_step(self, num_tokens: int) -> None:
        """A step of ``num_tokens`` is waited for."""
        longest = self._longest.get(num_tokens.bit_length())
        self.seconds = None if longest is None else max(LEAST_SECONDS, STEPS * longest)

    def end_step(self, num_tokens: int, seconds: float) -> None:
        """It took so long."""
        size = num_tokens.bit_length()
        self._longest[size] = max(seconds, DECAY * self._longest.get(size, 0.0))
