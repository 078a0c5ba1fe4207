"""How a request wants its tokens chosen and when it wants to stop."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Validated sampling settings of one request; meanings as in the OpenAI API and vLLM's extensions.

    ``temperature`` 0 is greedy. ``top_p`` 0 leaves the likeliest token and its equals. ``top_k`` 0 and ``min_p`` 0 and
    ``top_p`` 1 switch that filter off. ``seed`` None draws from a per-request seed chosen at arrival.
    """

    max_tokens: int
    """0: nothing is sampled; what is wanted of the prompt is the vector that its last step gives."""
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token, what is added to its logit), before penalties and temperature."""
    allowed_tokens: bytes = b""
    """Bit ``t % 8`` of byte ``t // 8`` is 1 if token ``t`` may be sampled; empty if every token may."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Words as tokens: the last one may not follow the others. Only read together with ``allowed_tokens``."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    logprobs: int | None = None
    """Report each output token's log probability, and those of as many of the best tokens; None for neither."""
    prompt_logprobs: int | None = None
    """Log probabilities of each prompt token but the first, which follows nothing."""

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def changes_logits(self) -> bool:
        """Whether a token is chosen by other logits than the model's."""
        return self.has_penalties or bool(self.logit_bias)

    @property
    def has_penalties(self) -> bool:
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0 or self.repetition_penalty != 1.0
