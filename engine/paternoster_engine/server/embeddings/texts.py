"""From the texts of a call to requests that the scheduler takes."""

from collections.abc import Sequence
from typing import Protocol

from tokenizers import Encoding

from paternoster_engine.core.errors import PromptTooLong
from paternoster_engine.core.request import Request
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.server.embeddings.requests import MAX_TOKENS, VectorRequest
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.identity import Caller
from paternoster_engine.server.openai.prompts import check_class, check_token_ids
from paternoster_engine.server.state import ServedModel

NOTHING = SamplingParams(max_tokens=0)
"""Is to be sampled."""
Text = str | tuple[str, str]
"""One, or two that the model reads together."""


class _Tokens(Protocol):
    """Of one text; ``len`` without a list of them."""

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
    texts: Sequence[Text | list[int]],
    name: str,
    sender: Caller,
) -> list[Request]:
    """One a text, which are the ``field`` of ``body``.

    Raises :class:`InvalidValue` for what is too much for one call, :class:`PromptTooLong` and :class:`TextQueueFull`.
    """
    check_class(served, body.priority)
    sender.check_priority(body.priority)
    most = _cut_to(served, body)
    written = [text for text in texts if not isinstance(text, list)]
    encodings = iter(await _encode(served, field, written, most) if written else [])
    prompts: list[_Tokens] = []
    for text in texts:
        if isinstance(text, list):
            check_token_ids(served, field, text)
            prompts.append(_Given(text if most is None else text[:most]))
        else:
            prompts.append(next(encodings))
    await _check_sizes(served, field, prompts)
    arrival = served.loop.clock()
    limits, scope = sender.limits(served.scheduler.config), sender.cache_scope(body)
    return [
        Request(
            request_id=f"{name}-{index}",
            prompt=prompt.ids,
            params=NOTHING,
            arrival=arrival,
            priority=body.priority,
            tenant=sender.tenant(body),
            limits=limits,
            cache_scope=scope,
            deadline=None if body.deadline_ms is None else arrival + body.deadline_ms / 1000,
            second_text=prompt.type_ids.index(1) if isinstance(text, tuple) and 1 in prompt.type_ids else None,
        )
        for index, (text, prompt) in enumerate(zip(texts, prompts, strict=True))
    ]


def _cut_to(served: ServedModel, body: VectorRequest) -> int | None:
    asked, most = body.truncate_prompt_tokens, served.max_model_len
    # Fewer than three could be nothing but what the model puts around a text.
    if asked is not None and asked != -1 and not 3 <= asked <= most:
        raise InvalidValue("truncate_prompt_tokens", f"truncate_prompt_tokens: must be -1 or 3 to {most} (got {asked})")
    return most if asked == -1 else asked


async def _encode(served: ServedModel, field: str, texts: Sequence[Text], most: int | None) -> list[Encoding]:
    size = sum(len(part.encode()) for text in texts for part in ([text] if isinstance(text, str) else text))
    if size > served.text_work.most:
        raise InvalidValue(
            field, f"{field}: has {size} bytes in all its texts, of at most {served.text_work.most} in one call"
        )

    lower = served.pooling is not None and served.pooling.lower_case

    def encode(first: str, second: str | None = None) -> Encoding:
        if lower:
            first, second = first.lower(), None if second is None else second.lower()
        return served.tokenizer.text_encoding(first, second, most)

    def work() -> list[Encoding]:
        return [encode(text) if isinstance(text, str) else encode(*text) for text in texts]

    return await served.text_work.run(size, work)


async def _check_sizes(served: ServedModel, field: str, prompts: Sequence[_Tokens]) -> None:
    """Before lists of ids are made, and before the first of the texts is computed."""
    longest, total = max(map(len, prompts)), sum(map(len, prompts))
    if longest > served.max_model_len:
        error = PromptTooLong(longest, 0, served.max_model_len)
        rejected = served.scheduler.counters.rejected
        await served.loop.call(lambda: rejected.update([error.reason]))
        raise error
    if total > MAX_TOKENS:
        raise InvalidValue(field, f"{field}: has {total} tokens in all its texts, of at most {MAX_TOKENS} in one call")
