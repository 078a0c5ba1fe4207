"""How many log probabilities one call may ask for: each is an object in the answer, and held until it is whole."""

from collections.abc import Sequence

from paternoster_engine.server.bodies.invalid_fields import shown
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai.requests import ChatCompletionRequest, CompletionRequest

MAX_TOLD_LOGPROBS = 2**20
"""Of all tokens of a call, each token's own and those of the others in its place."""
LEAST_ROOM = 1024
"""Tokens that each answer of a chat without a limit may have at least, where the context leaves as many."""


def check_completion(body: CompletionRequest, prompts: Sequence[Sequence[int]]) -> None:
    """Raises :class:`InvalidValue` for more than :data:`MAX_TOLD_LOGPROBS`."""
    tokens = sum(map(len, prompts))
    # Each choice tells its prompt.
    of_prompts = tokens * body.n * _logprobs_per_token(body.prompt_logprobs)
    if of_prompts > MAX_TOLD_LOGPROBS:
        raise _too_many_logprobs("prompt_logprobs", body.prompt_logprobs, of_prompts)
    echoed = tokens * body.n * _logprobs_per_token(body.logprobs) if body.echo else 0
    told = of_prompts + echoed + len(prompts) * body.sequences * body.max_tokens * _logprobs_per_token(body.logprobs)
    if told > MAX_TOLD_LOGPROBS:
        raise _too_many_logprobs("logprobs", body.logprobs, told)


def chat_limit(body: ChatCompletionRequest, prompt: Sequence[int], limit: int | None, room: int) -> int:
    """Most tokens of each answer: ``limit``, or without one so many of ``room`` as may be told.

    Raises :class:`InvalidValue` for more than :data:`MAX_TOLD_LOGPROBS`.
    """
    of_prompt = len(prompt) * _logprobs_per_token(body.prompt_logprobs)
    if of_prompt > MAX_TOLD_LOGPROBS:
        raise _too_many_logprobs("prompt_logprobs", body.prompt_logprobs, of_prompt)
    each = body.n * _logprobs_per_token(body.num_logprobs)
    left = room if each == 0 else (MAX_TOLD_LOGPROBS - of_prompt) // each
    if limit is None and left >= min(room, LEAST_ROOM):
        return min(room, left)
    tokens = room if limit is None else limit
    if tokens > left and each:
        field = "top_logprobs" if body.top_logprobs else "logprobs"
        raise _too_many_logprobs(field, getattr(body, field), of_prompt + tokens * each)
    return tokens


def _logprobs_per_token(others: int | None) -> int:
    """Log probabilities in one place."""
    return 0 if others is None else others + 1


def _too_many_logprobs(field: str, value: int | bool | None, told: int) -> InvalidValue:
    return InvalidValue(
        field,
        f"{field}: asks for {told} log probabilities, of at most {MAX_TOLD_LOGPROBS} in one call: ask for fewer "
        f"tokens, choices or others in their places (got {shown(value)})",
    )
