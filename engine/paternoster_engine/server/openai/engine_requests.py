"""From a body and the tokens of its prompts to the requests that the scheduler queues."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from paternoster_engine.core.request import Choices, Request
from paternoster_engine.core.request_spec import RequestAdapter, RequestSpec
from paternoster_engine.core.text_piece import TextPiece
from paternoster_engine.sampling.allowed_tokens import mask_of, words_as_tokens
from paternoster_engine.sampling.beam_search import BeamParams, BeamSearch
from paternoster_engine.server.access.identity import Caller
from paternoster_engine.server.bodies.invalid_fields import format_value
from paternoster_engine.server.continuation.stream_call import SEED_BITS, current_call
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai.constraint import NewMatcher
from paternoster_engine.server.openai.requests import ChatCompletionRequest, GenerationRequest, with_defaults
from paternoster_engine.server.state import ServedModel

WITH_BEAMS: Mapping[str, tuple[Any, ...]] = {
    # No token is certain before the search has ended.
    "stream": (False,),
    # Nothing is sampled, ...
    "temperature": (0.0, 1.0),
    "top_p": (1.0,),
    "top_k": (0, -1),
    "min_p": (0.0,),
    "seed": (None, -1),
    # ... beams are ranked by the model's own probabilities, ...
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
    "repetition_penalty": (1.0,),
    "logit_bias": ({},),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    # ... and end with a token: stop_token_ids are fine.
    "stop": ([],),
}
"""Fields that a beam search excludes, and the values that have no effect."""
WITHOUT_BEAMS: Mapping[str, tuple[Any, ...]] = {"length_penalty": (1.0,), "early_stopping": (False,)}


def build_requests(
    served: ServedModel,
    body: GenerationRequest,
    prompts: Sequence[list[int]],
    max_tokens: int,
    name: str,
    sender: Caller,
    new_matchers: Sequence[NewMatcher | None],
    text_pieces: Sequence[TextPiece] = (),
    adapter: RequestAdapter | None = None,
) -> list[Request]:
    """All sequences of each prompt, next to each other, or its one search; ``new_matchers``: by prompt.

    ``text_pieces``: of the first prompt.

    Sequences share the prompt's blocks: the others fork from the first. Raises :class:`InvalidValue`.
    """
    check_class(served, body.priority)
    sender.check_priority(body.priority)
    limits = sender.find_limits(served.scheduler.config)
    scope = sender.cache_scope(body, "" if adapter is None else adapter.digest.hex())
    most = served.scheduler.config.most_queued(limits)
    beam, allowed = _check_fields(served, body)
    count = body.sequences if beam is None else 1
    _check_count(len(prompts), count, most)
    # Beams are ranked by the model's own probabilities.
    sampled = body if beam is not None else with_defaults(body, served.sampling_defaults.list_set_values())
    params = replace(sampled.sampling_params(max_tokens), **allowed)
    # One sequence has the prompt's log probabilities, unless each begins with it; the others find its blocks cached.
    others = params if body.echoes else replace(params, prompt_logprobs=None)
    call = current_call.get()
    # An earlier attempt of the same call may still run here under its name.
    unique = name if call is None else f"{name}-{secrets.token_hex(4)}"
    draw_seed = partial(secrets.randbits, SEED_BITS) if call is None else call.draw_seed
    arrival, eos_token_ids = served.loop.clock(), served.prompts.tokenizer.eos_token_ids
    requests = [
        Request(
            RequestSpec(
                request_id=f"{unique}-{index * count + choice}",
                prompt=prompt,
                params=params if choice == 0 else others,
                arrival=arrival,
                eos_token_ids=eos_token_ids,
                # Of an answer that is parsed: the scheduler sees no thoughts and no calls, within which they are text.
                ends_at_stop_tokens=not isinstance(body, ChatCompletionRequest),
                seed=draw_seed() if params.seed is None else params.seed + choice,
                priority=body.priority,
                lane=sender.lane,
                tenant=sender.tenant,
                limits=limits,
                cache_scope=scope,
                adapter=adapter,
                deadline=None if body.deadline_ms is None else arrival + body.deadline_ms / 1000,
                text_pieces=text_pieces if index == choice == 0 else (),
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


def check_class(served: ServedModel, priority: int) -> None:
    """Raises :class:`InvalidValue` for a priority that would change nothing."""
    if priority != 0 and not served.scheduler.config.uses_priority:
        raise InvalidValue(
            "priority",
            f"priority: this engine was not started with priorities, leave it out or send 0 (got {priority})",
        )


def check_token_ids(served: ServedModel, field: str, token_ids: Sequence[int]) -> None:
    """Raises :class:`InvalidValue` for an id that is not in the model's vocabulary."""
    largest = max(token_ids, default=0)
    if largest >= served.vocab_size:
        raise InvalidValue(field, f"{field}: token id {_shorten_number(largest)} must be below {served.vocab_size}")


def _shorten_number(number: int) -> str:
    digits = str(number)
    return digits if len(digits) <= 20 else digits[:20] + "..."


def _check_fields(served: ServedModel, body: GenerationRequest) -> tuple[BeamParams | None, dict[str, Any]]:
    """The beam search of ``body``, and those sampling parameters that depend on the vocabulary.

    Raises :class:`InvalidValue` for what the model's vocabulary lacks, and for fields that exclude each other.
    """
    check_token_ids(served, "stop_token_ids", body.stop_token_ids)
    check_token_ids(served, "logit_bias", list(body.logit_bias))
    beam = _beam_params(body)
    check_token_ids(served, "allowed_token_ids", body.allowed_token_ids)
    if not body.allowed_token_ids and not body.bad_words:
        return beam, {}
    tokenizer = served.prompts.tokenizer
    return beam, {
        "allowed_tokens": mask_of(body.allowed_token_ids or range(served.vocab_size), served.vocab_size),
        "bad_words": words_as_tokens(body.bad_words, lambda word: tokenizer.encode_text(word, False).ids),
    }


def _beam_params(body: GenerationRequest) -> BeamParams | None:
    """The search that ``body`` describes; raises :class:`InvalidValue` for fields that exclude each other."""
    for field, allowed in (WITH_BEAMS if body.use_beam_search else WITHOUT_BEAMS).items():
        value = getattr(body, field)
        if value not in allowed:
            state, fine = json.dumps(body.use_beam_search), " or ".join(json.dumps(other) for other in allowed)
            raise InvalidValue(
                field,
                f"{field}: not allowed with use_beam_search={state}: leave it out or send {fine} "
                f"(got {format_value(value)})",
            )
    if not body.use_beam_search:
        return None
    if body.sequences < 2:
        raise InvalidValue("n", "n: with use_beam_search=true n or best_of is the number of beams, at least 2 (got 1)")
    return BeamParams(body.sequences, body.length_penalty, body.early_stopping)


def _check_count(num_prompts: int, count: int, most: int) -> None:
    """Raises :class:`InvalidValue` for more sequences in one call than may ever wait: it is of no use to try again."""
    if num_prompts * count > most:
        field = "n" if count > 1 else "prompt"
        raise InvalidValue(
            field, f"{field}: {num_prompts * count} sequences in one call: at most {most} of its sender's may wait"
        )
