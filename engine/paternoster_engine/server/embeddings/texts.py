"""From the texts of a call to requests that the scheduler takes."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tokenizers import Encoding

from paternoster_engine.core.errors import PromptTooLong
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.server.access.identity import Caller
from paternoster_engine.server.embeddings.requests import MAX_TOKENS, VectorRequest
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai.engine_requests import check_class, check_token_ids
from paternoster_engine.server.state import ServedModel

NOTHING = SamplingParams(max_tokens=0)
"""For requests of which nothing is sampled."""
Text = str | tuple[str, str]
"""One, or two that the model reads together."""


class Cut(NamedTuple):
    """How a text that is too long is cut where the body does not say it with ``truncate_prompt_tokens``."""

    most: int | None = None
    """Tokens of all of it; None: what is too long is refused."""
    each: tuple[int | None, ...] = ()
    """Counts of each of its texts."""
    keep_first: bool = False
    """Whether of two texts only the second is cut to ``most``."""
    after: str | None = None
    """Beginning of the text that stays where it is cut behind that; None where its end is cut off."""


class TextInput(NamedTuple):
    text: Text | list[int]
    cut: Cut = Cut()


class _TextTokens(Protocol):
    """Tokens of one text; ``len`` without a list of them."""

    @property
    def ids(self) -> list[int]: ...
    @property
    def type_ids(self) -> list[int]: ...
    def __len__(self) -> int: ...


class _Given:
    """Token ids that the client made itself."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self.type_ids: list[int] = []

    def __len__(self) -> int:
        return len(self.ids)


async def text_requests(
    served: ServedModel,
    body: VectorRequest,
    field: str,
    texts: Sequence[TextInput],
    name: str,
    sender: Caller,
    too_long: str | None = None,
    limit: tuple[str, int] | None = None,
) -> list[Request]:
    """One a text, which are the ``field`` of ``body``; ``too_long``: the only field whose texts may be too long.

    ``limit``: a field of ``body``, and the tokens above which it refuses a text.

    Raises :class:`InvalidValue` for what is too much for one call, :class:`PromptTooLong` and :class:`TextQueueFull`.
    """
    check_class(served, body.priority)
    sender.check_priority(body.priority)
    most = _cut_to(served, body)
    written = [given for given in texts if not isinstance(given.text, list)]
    encodings = iter(await _encode_texts(served, sender.tenant, field, written, most) if written else [])
    prompts: list[_TextTokens] = []
    for text, _ in texts:
        if isinstance(text, list):
            check_token_ids(served, field, text)
            prompts.append(_Given(text if most is None else text[:most]))
        else:
            prompts.append(next(encodings))
    await _check_sizes(served, field, prompts, too_long)
    if limit is not None and (longest := max(map(len, prompts))) > limit[1]:
        raise InvalidValue(field, f"{field}: has a text of {longest} tokens, of at most the {limit[1]} of {limit[0]}")
    arrival = served.loop.clock()
    limits, scope = sender.find_limits(served.scheduler.config), sender.cache_scope(body)
    return [
        Request(
            RequestSpec(
                request_id=f"{name}-{index}",
                prompt=prompt.ids,
                params=NOTHING,
                arrival=arrival,
                priority=body.priority,
                lane=sender.lane,
                tenant=sender.tenant,
                limits=limits,
                cache_scope=scope,
                deadline=None if body.deadline_ms is None else arrival + body.deadline_ms / 1000,
                second_text=prompt.type_ids.index(1) if isinstance(text, tuple) and 1 in prompt.type_ids else None,
            )
        )
        for index, ((text, _), prompt) in enumerate(zip(texts, prompts, strict=True))
    ]


def _cut_to(served: ServedModel, body: VectorRequest) -> int | None:
    limit, most = body.truncate_prompt_tokens, served.max_model_len
    # Fewer than three could be nothing but what the model puts around a text.
    if limit is not None and limit != -1 and not 3 <= limit <= most:
        raise InvalidValue("truncate_prompt_tokens", f"truncate_prompt_tokens: must be -1 or 3 to {most} (got {limit})")
    return most if limit == -1 else limit


async def _encode_texts(
    served: ServedModel, tenant: str, field: str, texts: Sequence[TextInput], most: int | None
) -> list[Encoding]:
    """``most``: tokens to which the body asks for each to be cut."""
    size = sum(len(part.encode()) for given in texts for part in _text_parts(given))
    if size > served.prompts.work.most:
        raise InvalidValue(
            field, f"{field}: has {size} bytes in all its texts, of at most {served.prompts.work.most} in one call"
        )

    lower = served.pooling is not None and served.pooling.lower_case

    def encode(given: TextInput) -> Encoding:
        parts = [part.lower() for part in _text_parts(given)] if lower else _text_parts(given)
        cut = given.cut if most is None else given.cut._replace(most=most, keep_first=False)
        if cut.after is not None:
            return encode_end(parts[0], cut.after.lower() if lower else cut.after, cut.most)
        # What comes after it is cut, or the text is refused.
        first, *second = (served.prompts.tokenizer.find_prefix(part, served.max_model_len) for part in parts)
        other = second[0] if second else None
        return served.prompts.tokenizer.text_encoding(first, other, cut.most, each=cut.each, keep_first=cut.keep_first)

    def encode_end(text: str, beginning: str, most: int | None) -> Encoding:
        end = served.prompts.tokenizer.find_suffix(text[len(beginning) :], served.max_model_len)
        return served.prompts.tokenizer.text_encoding(beginning + end, most=most, cut_after=beginning)

    def encode_given() -> list[Encoding]:
        return [encode(given) for given in texts]

    return await served.prompts.work.run(tenant, size, encode_given)


def _text_parts(given: TextInput) -> Sequence[str]:
    """Its texts; token ids have none."""
    text = given.text
    return () if isinstance(text, list) else (text,) if isinstance(text, str) else text


async def _check_sizes(
    served: ServedModel, field: str, prompts: Sequence[_TextTokens], too_long: str | None = None
) -> None:
    """Before lists of ids are made, and before the first of the texts is computed."""
    longest, total = max(map(len, prompts)), sum(map(len, prompts))
    if longest > served.max_model_len:
        error = PromptTooLong(longest, 0, served.max_model_len)
        rejected = served.scheduler.counters.rejected
        await served.loop.call_in_loop(lambda: rejected.update([error.reason]))
        if too_long is not None:
            raise InvalidValue(
                too_long,
                f"{too_long}: is too long: the shortest text with it that the model could read has {longest} "
                f"tokens, of at most {served.max_model_len}",
            )
        raise error
    if total > MAX_TOKENS:
        raise InvalidValue(field, f"{field}: has {total} tokens in all its texts, of at most {MAX_TOKENS} in one call")
