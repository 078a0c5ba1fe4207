"""From what a client sent to requests that the scheduler takes."""

import secrets
from collections.abc import Sequence
from dataclasses import replace

from tokenizers import Encoding

from paternoster_engine.core.errors import PromptTooLong
from paternoster_engine.core.request import Choices, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.tokenizer import Truncation
from paternoster_engine.sampling.allowed_tokens import mask_of, words_as_tokens
from paternoster_engine.sampling.beam_search import BeamSearch
from paternoster_engine.server.access.identity import Caller
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai.beams import beam_params
from paternoster_engine.server.openai.chat_prompts import encode_chat
from paternoster_engine.server.openai.fields.body import with_defaults
from paternoster_engine.server.openai.logprob_bounds import chat_limit, check_completion
from paternoster_engine.server.openai.requests import ChatCompletionRequest, CompletionRequest, GenerationRequest
from paternoster_engine.server.openai.structure import NewMatcher, matcher_of_chat, matchers_of_text, within_budget
from paternoster_engine.server.openai.text_sizes import text_size
from paternoster_engine.server.state import ServedModel


async def encode(
    served: ServedModel,
    tenant: str,
    field: str,
    texts: Sequence[str],
    add_special_tokens: bool,
    truncation: Truncation | None = None,
) -> list[Encoding]:
    """Tokens of each of ``texts``, which are the ``field`` of a body.

    Raises :class:`InvalidValue` for texts that could never fit, before they are read, and :class:`TextQueueFull`.
    """
    size = text_size(served, field, texts, cut=truncation is not None)

    def work() -> list[Encoding]:
        return [served.tokenizer.encoding(text, add_special_tokens, truncation) for text in texts]

    return await served.text_work.run(tenant, size, work)


async def chat_prompt(
    served: ServedModel, tenant: str, body: ChatCompletionRequest, truncation: Truncation | None = None
) -> tuple[Encoding, str]:
    """The prompt of a chat call, as :func:`encode_chat`."""
    others = body.variables()
    template = served.tokenizer.tool_use_template if "tools" in others else None
    variables = body.reasoning_variables(template or served.tokenizer.chat_template or "") | others
    return await encode_chat(served, tenant, body.messages, body, variables, truncation=truncation)


async def chat_requests(
    served: ServedModel, body: ChatCompletionRequest, name: str, sender: Caller
) -> tuple[list[Request], str]:
    """The sequences of a chat call, and how their prompt ends.

    Without a limit each sequence may fill the context, or what may be reported of its tokens. A limit beyond what the
    context leaves counts as none: agents send one number for every model and cannot compute the length of the prompt.
    Raises :class:`PromptTooLong` where not even ``min_tokens`` are left.
    """
    encoding, ending = await chat_prompt(served, sender.tenant, body, _truncation(served, body, body.limit or 1))
    prompt = await token_ids(served, encoding, max(1, body.min_tokens))
    room = max(1, served.longest_request - len(prompt))
    if body.limit is None:
        room = min(room, served.sampling_defaults.max_tokens or room)
    asked = None if body.limit is not None and body.limit > room else body.limit
    limit = chat_limit(body, prompt, asked, room)
    matcher = await matcher_of_chat(served, body, ending, sender.tenant)
    matcher = within_budget(served, body, ending, matcher)
    return _requests(served, body, [prompt], limit, name, sender, [matcher]), ending


async def completion_requests(served: ServedModel, body: CompletionRequest, name: str, sender: Caller) -> list[Request]:
    """The sequences of a completion call, prompt by prompt; raises :class:`InvalidValue`."""
    # A step that computes a prompt to its end samples: where nothing is asked for, its token is not told.
    most = max(1, body.max_tokens)
    texts = [prompt for prompt in body.prompt if isinstance(prompt, str)]
    around = served.tokenizer.num_special_tokens if texts and body.add_special_tokens else 0
    truncation = _truncation(served, body, most, around)
    encodings = iter(
        await encode(served, sender.tenant, "prompt", texts, body.add_special_tokens, truncation) if texts else []
    )
    prompts = []
    for prompt in body.prompt:
        if isinstance(prompt, str):
            prompts.append(await token_ids(served, next(encodings), most))
        else:
            check_token_ids(served, "prompt", prompt)
            prompts.append(prompt if truncation is None else _cut(prompt, truncation))
    check_completion(body, prompts)
    matchers = await matchers_of_text(served, body, prompts, sender.tenant)
    return _requests(served, body, prompts, most, name, sender, matchers)


def _truncation(served: ServedModel, body: GenerationRequest, output: int, around: int = 0) -> Truncation | None:
    """How a prompt is cut that leaves too little for ``output`` tokens.

    ``around``: tokens that the tokenizer puts around a text, which stay. Raises :class:`InvalidValue`.
    """
    field, asked, most = "truncate_prompt_tokens", body.truncate_prompt_tokens, served.longest_request - output
    if asked is None:
        return None
    if most <= around:
        raise InvalidValue(
            field,
            f"{field}: {output} tokens of output leave none for the prompt, of {served.longest_request} in all: ask "
            f"for fewer (got {asked})",
        )
    if asked != -1 and not around < asked <= most:
        raise InvalidValue(field, f"{field}: must be -1 or {around + 1} to {most} (got {asked})")
    return Truncation(most if asked == -1 else asked, body.truncation_side)


def _cut(prompt: list[int], truncation: Truncation) -> list[int]:
    return prompt[-truncation.most :] if truncation.side == "left" else prompt[: truncation.most]


async def token_ids(served: ServedModel, encoding: Encoding, max_tokens: int) -> list[int]:
    """Raises :class:`PromptTooLong` before a list is made that nobody can use: that would hold up everybody."""
    if len(encoding) + max_tokens > served.max_model_len:
        error = PromptTooLong(len(encoding), max_tokens, served.max_model_len)
        rejected = served.scheduler.counters.rejected
        await served.loop.call(lambda: rejected.update([error.reason]))
        raise error
    ids: list[int] = encoding.ids
    return ids


def check_token_ids(served: ServedModel, field: str, token_ids: Sequence[int]) -> None:
    """Raises :class:`InvalidValue` for an id that the model does not know."""
    largest = max(token_ids, default=0)
    if largest >= served.vocab_size:
        raise InvalidValue(field, f"{field}: token id {_short(largest)} must be below {served.vocab_size}")


def _short(number: int) -> str:
    digits = str(number)
    return digits if len(digits) <= 20 else digits[:20] + "..."


def _requests(
    served: ServedModel,
    body: GenerationRequest,
    prompts: Sequence[list[int]],
    max_tokens: int,
    name: str,
    sender: Caller,
    new_matchers: Sequence[NewMatcher | None],
) -> list[Request]:
    """All sequences of each prompt, next to each other, or its one search; ``new_matchers``: by prompt.

    Sequences share the prompt's blocks: the others fork from the first.
    """
    check_class(served, body.priority)
    sender.check_priority(body.priority)
    check_token_ids(served, "stop_token_ids", body.stop_token_ids)
    check_token_ids(served, "logit_bias", list(body.logit_bias))
    beam = beam_params(body)
    # Beams are ranked by what the model itself says.
    sampled = body if beam is not None else with_defaults(body, served.sampling_defaults.values())
    params = _with_allowed_tokens(served, body, sampled.sampling_params(max_tokens))
    count = body.sequences if beam is None else 1
    # One sequence tells of the prompt, unless each begins with it; the others find its blocks in the prefix cache.
    others = params if body.echoes else replace(params, prompt_logprobs=None)
    arrival, eos_token_ids = served.loop.clock(), served.tokenizer.eos_token_ids
    limits, scope = sender.limits(served.scheduler.config), sender.cache_scope(body)
    _check_count(len(prompts), count, served.scheduler.config.most_queued(limits))
    requests = [
        Request(
            RequestSpec(
                request_id=f"{name}-{index * count + choice}",
                prompt=prompt,
                params=params if choice == 0 else others,
                arrival=arrival,
                eos_token_ids=eos_token_ids,
                seed=secrets.randbits(63) if params.seed is None else params.seed + choice,
                priority=body.priority,
                tenant=sender.tenant,
                limits=limits,
                cache_scope=scope,
                deadline=None if body.deadline_ms is None else arrival + body.deadline_ms / 1000,
            ),
            branch_selector=None if beam is None else BeamSearch(beam, params, eos_token_ids),
            matcher=None if new_matcher is None else new_matcher(),
        )
        for index, (prompt, new_matcher) in enumerate(zip(prompts, new_matchers, strict=True))
        for choice in range(count)
    ]
    for index, request in enumerate(requests):
        first = requests[index // count * count]
        request.prefix_donor = None if request is first else first
        if request is first and (count > 1 or body.n > 1):
            request.choices = Choices(body.n, count)
        request.choices = first.choices
    return requests


def _with_allowed_tokens(served: ServedModel, body: GenerationRequest, params: SamplingParams) -> SamplingParams:
    """``params`` with what ``allowed_token_ids`` and ``bad_words`` leave; raises :class:`InvalidValue`."""
    check_token_ids(served, "allowed_token_ids", body.allowed_token_ids)
    if not body.allowed_token_ids and not body.bad_words:
        return params
    return replace(
        params,
        allowed_tokens=mask_of(body.allowed_token_ids or range(served.vocab_size), served.vocab_size),
        bad_words=words_as_tokens(body.bad_words, lambda word: served.tokenizer.encoding(word, False).ids),
    )


def _check_count(num_prompts: int, count: int, most: int) -> None:
    """Raises :class:`InvalidValue` for more sequences in one call than may ever wait: it is of no use to try again."""
    if num_prompts * count > most:
        field = "n" if count > 1 else "prompt"
        raise InvalidValue(
            field, f"{field}: {num_prompts * count} sequences in one call: at most {most} of its sender's may wait"
        )


def check_class(served: ServedModel, priority: int) -> None:
    """Raises :class:`InvalidValue` for a priority that would change nothing."""
    if priority != 0 and not served.scheduler.config.uses_priority:
        raise InvalidValue(
            "priority",
            f"priority: this engine was not started with priorities, leave it out or send 0 (got {priority})",
        )
