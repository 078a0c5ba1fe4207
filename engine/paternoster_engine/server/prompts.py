"""From what a client sent to requests that the scheduler takes."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import replace

from paternoster_engine.core.request import Request
from paternoster_engine.server.beam_fields import beam_params
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai_types import (
    ChatCompletionRequest,
    ChatMessage,
    CompletionRequest,
    GenerationRequest,
)
from paternoster_engine.server.state import ServedModel


async def encode(served: ServedModel, text: str, add_special_tokens: bool) -> list[int]:
    """Token ids of ``text``, made outside of the event loop: a prompt can be long."""
    return await asyncio.to_thread(served.tokenizer.encode, text, add_special_tokens)


async def encode_chat(
    served: ServedModel,
    messages: Sequence[ChatMessage],
    add_generation_prompt: bool = True,
    add_special_tokens: bool = False,
) -> list[int]:
    """Token ids of a conversation; raises :class:`ChatTemplateError`."""
    text = served.tokenizer.apply_chat_template(
        [message.for_template() for message in messages], add_generation_prompt=add_generation_prompt
    )
    return await encode(served, text, add_special_tokens)


async def chat_requests(served: ServedModel, body: ChatCompletionRequest, name: str) -> list[Request]:
    """The sequences of a chat call; without a limit each may fill what the context leaves."""
    prompt = await encode_chat(served, body.messages)
    limit = body.limit if body.limit is not None else max(1, served.longest_request - len(prompt))
    return _requests(served, body, [prompt], limit, name)


async def completion_requests(served: ServedModel, body: CompletionRequest, name: str) -> list[Request]:
    """The sequences of a completion call, prompt by prompt."""
    prompts = []
    for prompt in body.prompt:
        if isinstance(prompt, str):
            prompts.append(await encode(served, prompt, body.add_special_tokens))
        else:
            check_token_ids(served, "prompt", prompt)
            prompts.append(prompt)
    return _requests(served, body, prompts, body.max_tokens, name)


def check_token_ids(served: ServedModel, field: str, token_ids: Sequence[int]) -> None:
    """Raises :class:`InvalidValue` for an id that the model does not know."""
    largest = max(token_ids, default=0)
    if largest >= served.vocab_size:
        raise InvalidValue(field, f"{field}: token id {largest} must be below {served.vocab_size}")


def _requests(
    served: ServedModel, body: GenerationRequest, prompts: Sequence[list[int]], max_tokens: int, name: str
) -> list[Request]:
    """All sequences of each prompt, next to each other, or its one search.

    Sequences share the prompt's blocks: the others fork from the first.
    """
    _check_class(served, body)
    check_token_ids(served, "stop_token_ids", body.stop_token_ids)
    beam = beam_params(body)
    params = body.sampling_params(max_tokens, beam)
    count = body.sequences if beam is None else 1
    # One sequence tells of the prompt, unless each begins with it; the others find its blocks in the prefix cache.
    others = params if body.echoes else replace(params, prompt_logprobs=None)
    arrival = served.loop.clock()
    requests = [
        Request(
            request_id=f"{name}-{index * count + choice}",
            prompt=prompt,
            params=params if choice == 0 else others,
            arrival=arrival,
            eos_token_ids=served.tokenizer.eos_token_ids,
            seed=secrets.randbits(63) if params.seed is None else params.seed + choice,
            priority=body.priority,
            tenant=body.user or "",
            deadline=None if body.deadline_ms is None else arrival + body.deadline_ms / 1000,
        )
        for index, prompt in enumerate(prompts)
        for choice in range(count)
    ]
    for index, request in enumerate(requests):
        first = requests[index // count * count]
        request.twin = None if request is first else first
    return requests


def _check_class(served: ServedModel, body: GenerationRequest) -> None:
    """Raises :class:`InvalidValue` for a priority that would change nothing."""
    if body.priority != 0 and not served.scheduler.config.uses_priority:
        raise InvalidValue(
            "priority",
            f"priority: this engine was not started with priorities, leave it out or send 0 (got {body.priority})",
        )
