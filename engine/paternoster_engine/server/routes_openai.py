"""The OpenAI API: models, chat completions, completions."""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from paternoster_contract import paths
from paternoster_engine.core.request import Request as SequenceRequest
from paternoster_engine.server.answers import Answer, ChatAnswer, TextAnswer, frames
from paternoster_engine.server.dependencies import State
from paternoster_engine.server.generation import Generation
from paternoster_engine.server.openai_objects import ChatCompletion, ModelCard, ModelList, TextCompletion
from paternoster_engine.server.openai_types import ChatCompletionRequest, CompletionRequest, GenerationRequest
from paternoster_engine.server.prompts import chat_requests, completion_requests
from paternoster_engine.server.state import ServedModel
from paternoster_engine.server.streaming import EventStream, unless_gone

router = APIRouter()


@router.get(paths.MODELS)
async def models(state: State) -> ModelList:
    served = state.served
    card = ModelCard(
        id=served.name, created=int(state.started_at), root=served.name, max_model_len=served.max_model_len
    )
    return ModelList(data=[card])


@router.post("/v1/chat/completions", response_model=None, responses={200: {"model": ChatCompletion}})
async def chat_completions(request: Request, body: ChatCompletionRequest, state: State) -> Response:
    served, answer = state.accepting(body.model), ChatAnswer(state.served.name, body.n)
    return await _generate(request, body, served, answer, await chat_requests(served, body, answer.id))


@router.post("/v1/completions", response_model=None, responses={200: {"model": TextCompletion}})
async def completions(request: Request, body: CompletionRequest, state: State) -> Response:
    served, answer = state.accepting(body.model), TextAnswer(state.served.name)
    return await _generate(request, body, served, answer, await completion_requests(served, body, answer.id))


async def _generate(
    request: Request,
    body: GenerationRequest,
    served: ServedModel,
    answer: Answer,
    sequences: Sequence[SequenceRequest],
) -> Response:
    """The answer to one call. A stream begins with its first text: what fails before that still gets a status."""
    generation = Generation(served.loop, served.tokenizer, sequences, body.skip_special_tokens, body.n)
    try:
        await generation.start()
        if body.stream:
            pieces = generation.pieces()
            first = await unless_gone(request, anext(pieces))
            return EventStream(frames(answer, generation, first, pieces, body.include_usage), generation)
        texts = await unless_gone(request, generation.complete())
    except BaseException:
        generation.close()
        raise
    whole = answer.whole(texts, generation.usage)
    return Response(whole.model_dump_json(exclude_unset=True), media_type="application/json")
