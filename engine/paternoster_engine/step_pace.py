"""How many tokens a step computes in a given time, by the steps that were."""

LEAST_TOKENS = 16
"""Prompt tokens below which a step takes the time of reading weights, whatever it computes."""
NEW = 0.25
"""What the last step counts for."""


class StepPace:
    """Tokens a second of steps that compute prompts, the latest for the most."""

    def __init__(self) -> None:
        self._tokens_per_second: float | None = None

    def add(self, num_tokens: int, prompt_tokens: int, seconds: float) -> None:
        """A step of ``num_tokens``, ``prompt_tokens`` of them of prompts."""
        if prompt_tokens < LEAST_TOKENS or seconds <= 0:
            return
        rate, before = num_tokens / seconds, self._tokens_per_second
        self._tokens_per_second = rate if before is None else NEW * rate + (1 - NEW) * before

    def tokens_in(self, seconds: float) -> int | None:
        """None before the first prompt."""
        return None if self._tokens_per_second is None else max(1, int(self._tokens_per_second * seconds))
