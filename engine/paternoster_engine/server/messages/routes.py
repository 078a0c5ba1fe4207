"""``POST /v1/messages`` and ``/v1/messages/count_tokens``."""

from typing import Any

from fastapi import Request, Response

from paternoster_engine.server.access.identity import From
from paternoster_engine.server.bodies.body_route import new_router
from paternoster_engine.server.bodies.reading_shares import charge_reading
from paternoster_engine.server.continuation.stream_call import new_hex
from paternoster_engine.server.dependencies import State
from paternoster_engine.server.error_responses import RESPONSES
from paternoster_engine.server.generation.streaming import STREAMED, unless_gone
from paternoster_engine.server.messages.events import MessageAnswer
from paternoster_engine.server.messages.objects import ErrorEvent, MessageObject, TokenCount
from paternoster_engine.server.messages.requests import CountTokensRequest, MessagesRequest
from paternoster_engine.server.messages.translate import NAMES, chat_of, prompt_of
from paternoster_engine.server.openai.chat_prompts import encode_chat
from paternoster_engine.server.translation.names import use_client_names
from paternoster_engine.server.translation.respond import respond_chat

router = new_router()

REFUSED: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorEvent, "description": response["description"]} for status, response in RESPONSES.items()
}
"""Failures in the OpenAPI document; :mod:`paternoster_http.errors.anthropic_errors` makes their form."""


@router.post("/v1/messages", response_model=None, responses={200: {"model": MessageObject, **STREAMED}, **REFUSED})
async def create_message(request: Request, body: MessagesRequest, state: State, sender: From) -> Response:
    served = state.find_target(body.model)
    with charge_reading():
        chat, names = chat_of(body).build_request(NAMES)
    thinking = body.thinking is None or body.thinking.display != "omitted"
    form = served.answers.format
    answer = MessageAnswer(served.name, lambda: form.call_id(new_hex()), body.max_tokens, thinking=thinking)
    return await respond_chat(request, served, chat, answer, sender, names, stream=body.stream)


@router.post("/v1/messages/count_tokens", responses=REFUSED)
async def count_tokens(request: Request, body: CountTokensRequest, state: State, sender: From) -> TokenCount:
    """The sum of ``usage.input_tokens`` and ``usage.cache_read_input_tokens`` of the message."""
    served = state.find_model(body.model)
    with charge_reading():
        chat, names = prompt_of(body).build_request(NAMES)
    with use_client_names(names):
        encoding, _ = await unless_gone(request, encode_chat(served.prompts, sender.tenant, chat.messages, chat))
    return TokenCount(input_tokens=len(encoding))
