"""From a body to requests: its prompts as tokens, how many tokens may follow them, and what these must match."""

import asyncio
from collections.abc import Sequence

from tokenizers import Encoding

from paternoster_engine.core.errors import PromptTooLong
from paternoster_engine.core.request import Request
from paternoster_engine.core.text_piece import TextPiece
from paternoster_engine.model.tokenizer import Truncation
from paternoster_engine.server.access.identity import Caller
from paternoster_engine.server.bodies.invalid_fields import format_value
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai.chat_prompts import encode_chat
from paternoster_engine.server.openai.constraint import AnswerConstraint
from paternoster_engine.server.openai.engine_requests import build_requests, check_token_ids
from paternoster_engine.server.openai.requests import ChatCompletionRequest, CompletionRequest, GenerationRequest
from paternoster_engine.server.state import ServedModel
from paternoster_engine.server.text_chains.prompt_text import begin_prompt_text

MAX_CALL_LOGPROBS = 2**20
"""Log probabilities of one call, each token's own and those of the others in its place.

Each is an object in the answer, which is held until it is whole.
"""
LEAST_ROOM = 1024
"""Tokens that each answer of a chat without a limit may have at least, where the context leaves as many."""


async def chat_requests(
    served: ServedModel, body: ChatCompletionRequest, name: str, sender: Caller
) -> tuple[list[Request], str]:
    """The sequences of a chat call, and how their prompt ends.

    Without a limit each sequence may fill the context, or the log probabilities that one call may have. A limit beyond
    what the context leaves counts as none: agents send one number for every model and cannot compute the length of the
    prompt. Raises :class:`PromptTooLong` where not even ``min_tokens`` are left, and :class:`InvalidValue`.
    """
    truncation = _find_truncation(served, body, body.limit or 1)
    text = begin_prompt_text(served.name, sender) if served.records_texts and truncation is None else None
    encoding, ending = await encode_chat(
        served.prompts, sender.tenant, body.messages, body, truncation=truncation, text=text
    )
    prompt = await _token_ids(served, encoding, max(1, body.min_tokens))
    limit = _limit_chat(served, body, prompt)
    matcher = await AnswerConstraint(served.answers, body, sender.tenant).match_chat(ending)
    pieces = () if text is None else text.pieces
    adapter = None if served.adapter is None else await served.acquire_adapter()
    return build_requests(served, body, [prompt], limit, name, sender, [matcher], pieces, adapter), ending


async def completion_requests(served: ServedModel, body: CompletionRequest, name: str, sender: Caller) -> list[Request]:
    """The sequences of a completion call, prompt by prompt; raises :class:`PromptTooLong` and :class:`InvalidValue`."""
    # A step that computes a prompt to its end samples: with max_tokens=0 the answer leaves that token out.
    limit = max(1, body.max_tokens)
    prompts = await _encode_prompts(served, body, limit, sender.tenant)
    _check_completion_logprobs(body, prompts)
    matchers = await AnswerConstraint(served.answers, body, sender.tenant).match_texts(prompts)
    pieces = await _locate_text(served, body, prompts[0], sender)
    adapter = None if served.adapter is None else await served.acquire_adapter()
    return build_requests(served, body, prompts, limit, name, sender, matchers, pieces, adapter)


async def _locate_text(
    served: ServedModel, body: CompletionRequest, tokens: list[int], sender: Caller
) -> Sequence[TextPiece]:
    """The pieces of the first prompt, which has these tokens."""
    if not served.records_texts or body.truncate_prompt_tokens is not None:
        return ()
    text, prompt = begin_prompt_text(served.name, sender), body.prompt[0]
    if text is None:
        return ()
    if isinstance(prompt, str):
        await asyncio.to_thread(text.locate_pieces, prompt, tokens, served.prompts.tokenizer)
    else:
        text.locate_ids()
    return text.pieces


async def _encode_prompts(served: ServedModel, body: CompletionRequest, limit: int, tenant: str) -> list[list[int]]:
    """Token ids of each prompt, which leave room for ``limit`` tokens."""
    texts = [prompt for prompt in body.prompt if isinstance(prompt, str)]
    around = served.prompts.tokenizer.num_special_tokens if texts and body.add_special_tokens else 0
    truncation = _find_truncation(served, body, limit, around)
    encodings = iter(
        await served.prompts.encode_texts(tenant, "prompt", texts, body.add_special_tokens, truncation) if texts else []
    )
    prompts = []
    for prompt in body.prompt:
        if isinstance(prompt, str):
            prompts.append(await _token_ids(served, next(encodings), limit))
        else:
            check_token_ids(served, "prompt", prompt)
            prompts.append(prompt if truncation is None else _truncate_ids(prompt, truncation))
    return prompts


def _find_truncation(served: ServedModel, body: GenerationRequest, output: int, around: int = 0) -> Truncation | None:
    """How a prompt is cut that leaves too little for ``output`` tokens.

    ``around``: tokens that the tokenizer puts around a text, which stay. Raises :class:`InvalidValue`.
    """
    field, limit, longest = "truncate_prompt_tokens", body.truncate_prompt_tokens, served.prompts.longest_request
    most = longest - output
    if limit is None:
        return None
    if most <= around:
        raise InvalidValue(
            field,
            f"{field}: {output} tokens of output leave none for the prompt, of {longest} in all: ask "
            f"for fewer (got {limit})",
        )
    if limit != -1 and not around < limit <= most:
        raise InvalidValue(field, f"{field}: must be -1 or {around + 1} to {most} (got {limit})")
    return Truncation(most if limit == -1 else limit, body.truncation_side)


def _truncate_ids(prompt: list[int], truncation: Truncation) -> list[int]:
    return prompt[-truncation.most :] if truncation.side == "left" else prompt[: truncation.most]


async def _token_ids(served: ServedModel, encoding: Encoding, max_tokens: int) -> list[int]:
    """Raises :class:`PromptTooLong` before a useless list is made, which would hold up the event loop."""
    if len(encoding) + max_tokens > served.max_model_len:
        error = PromptTooLong(len(encoding), max_tokens, served.max_model_len)
        rejected = served.scheduler.counters.rejected
        await served.loop.call_in_loop(lambda: rejected.update([error.reason]))
        raise error
    ids: list[int] = encoding.ids
    return ids


def _limit_chat(served: ServedModel, body: ChatCompletionRequest, prompt: Sequence[int]) -> int:
    """Most tokens of each answer: the body's limit, or what the context and :data:`MAX_CALL_LOGPROBS` leave.

    Raises :class:`InvalidValue` for more log probabilities than that.
    """
    room = max(1, served.prompts.longest_request - len(prompt))
    if body.limit is None:
        room = min(room, served.sampling_defaults.max_tokens or room)
    limit = None if body.limit is not None and body.limit > room else body.limit
    of_prompt = len(prompt) * _logprobs_per_token(body.prompt_logprobs)
    if of_prompt > MAX_CALL_LOGPROBS:
        raise _too_many_logprobs("prompt_logprobs", body.prompt_logprobs, of_prompt)
    each = body.n * _logprobs_per_token(body.num_logprobs)
    left = room if each == 0 else (MAX_CALL_LOGPROBS - of_prompt) // each
    if limit is None and left >= min(room, LEAST_ROOM):
        return min(room, left)
    tokens = room if limit is None else limit
    if tokens > left and each:
        field = "top_logprobs" if body.top_logprobs else "logprobs"
        raise _too_many_logprobs(field, getattr(body, field), of_prompt + tokens * each)
    return tokens


def _check_completion_logprobs(body: CompletionRequest, prompts: Sequence[Sequence[int]]) -> None:
    """Raises :class:`InvalidValue` for more than :data:`MAX_CALL_LOGPROBS`."""
    tokens = sum(map(len, prompts))
    # Each choice has those of its prompt.
    of_prompts = tokens * body.n * _logprobs_per_token(body.prompt_logprobs)
    if of_prompts > MAX_CALL_LOGPROBS:
        raise _too_many_logprobs("prompt_logprobs", body.prompt_logprobs, of_prompts)
    echoed = tokens * body.n * _logprobs_per_token(body.logprobs) if body.echo else 0
    output = len(prompts) * body.sequences * body.max_tokens * _logprobs_per_token(body.logprobs)
    if of_prompts + echoed + output > MAX_CALL_LOGPROBS:
        raise _too_many_logprobs("logprobs", body.logprobs, of_prompts + echoed + output)


def _logprobs_per_token(others: int | None) -> int:
    """Log probabilities in one place."""
    return 0 if others is None else others + 1


def _too_many_logprobs(field: str, value: int | bool | None, count: int) -> InvalidValue:
    return InvalidValue(
        field,
        f"{field}: asks for {count} log probabilities, of at most {MAX_CALL_LOGPROBS} in one call: ask for fewer "
        f"tokens, choices or others in their places (got {format_value(value)})",
    )
