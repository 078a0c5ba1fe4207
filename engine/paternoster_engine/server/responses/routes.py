"""``POST /v1/responses``."""

from fastapi import Request, Response

from paternoster_engine.server.access.identity import From
from paternoster_engine.server.bodies.body_route import new_router
from paternoster_engine.server.bodies.reading_shares import charge_reading
from paternoster_engine.server.continuation.stream_call import new_hex
from paternoster_engine.server.dependencies import State
from paternoster_engine.server.generation.streaming import STREAMED
from paternoster_engine.server.openai.logprobs import LogprobsWriter
from paternoster_engine.server.openai.requests import with_defaults
from paternoster_engine.server.responses.events import ResponseAnswer
from paternoster_engine.server.responses.objects import ResponseObject
from paternoster_engine.server.responses.requests import ResponsesRequest
from paternoster_engine.server.responses.translate import NAMES, chat_of
from paternoster_engine.server.translation.respond import respond_chat

router = new_router()


@router.post("/v1/responses", response_model=None, responses={200: {"model": ResponseObject, **STREAMED}})
async def create_response(request: Request, body: ResponsesRequest, state: State, sender: From) -> Response:
    served = state.find_target(body.model)
    # The answer repeats them.
    body = with_defaults(body, served.sampling_defaults.list_set_values())
    with charge_reading():
        translated = chat_of(body)
        chat, names = translated.build_request(NAMES)
    writer = LogprobsWriter(served.answers.tokenizer)
    form = served.answers.format
    answer = ResponseAnswer(
        served.name, body, translated.offer.tools, lambda: form.call_id(new_hex()), writer.write_content
    )
    return await respond_chat(request, served, chat, answer, sender, names, stream=body.stream)
