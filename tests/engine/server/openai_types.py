"""Every answer of a server under test as OpenAI's own client reads it: its types must take each of them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

STREAMED = "text/event-stream"
WHOLE: Mapping[str, type[BaseModel]] = {
    "/v1/chat/completions": ChatCompletion, "/v1/completions": Completion
}  # fmt: skip
CHUNKS: Mapping[str, type[BaseModel]] = WHOLE | {"/v1/chat/completions": ChatCompletionChunk}


async def check(response: httpx.Response) -> None:
    """A hook of ``httpx``; raises :class:`pydantic.ValidationError`."""
    await response.aread()
    path = response.request.url.path
    if response.status_code != 200 or not path.startswith("/v1/"):
        return
    if path == "/v1/models":
        for card in response.json()["data"]:
            Model.model_validate(card, strict=True)
    elif response.headers["content-type"].startswith(STREAMED) and path in CHUNKS:
        for event in _events(response.text):
            CHUNKS[path].model_validate(_as_typed(event), strict=True)
    elif path in WHOLE:
        WHOLE[path].model_validate(_as_typed(response.json()), strict=True)


def _events(text: str) -> Iterator[dict[str, Any]]:
    for event in text.split("\n\n"):
        if event and event != "data: [DONE]" and not event.startswith('data: {"error"'):
            yield json.loads(event.removeprefix("data: "))


def _as_typed(answer: dict[str, Any]) -> dict[str, Any]:
    """Where OpenAI's API says null and its types of texts do not: in chunks before the last, and of first tokens."""
    if answer["object"] != "text_completion":
        return answer
    choices = []
    for choice in answer["choices"]:
        told = choice["logprobs"]
        if told is not None:
            told = told | {name: [each for each in told[name] if each is not None]
                           for name in ("token_logprobs", "top_logprobs")}  # fmt: skip
        choices.append(choice | {"finish_reason": choice["finish_reason"] or "stop", "logprobs": told})
    return answer | {"choices": choices}
