"""The OpenAI API: models, chat completions, completions."""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from paternoster_contract import paths
from paternoster_engine.core.request import Request as EngineRequest
from paternoster_engine.server.answers import Answer, ChatAnswer, TextAnswer, frames
from paternoster_engine.server.beam_generation import BeamGeneration
from paternoster_engine.server.dependencies import State
from paternoster_engine.server.generation import Generation
from paternoster_engine.server.identity import From
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
async def chat_completions(request: Request, body: ChatCompletionRequest, state: State, sender: From) -> Response:
    served = state.accepting(body.model)
    answer = ChatAnswer(served.name, served.tokenizer, body)
    sequences = await chat_requests(served, body, answer.id, sender)
    generation = _generation(served, body, sequences)
    return await _answer(request, body, answer, generation)


@router.post("/v1/completions", response_model=None, responses={200: {"model": TextCompletion}})
async def completions(request: Request, body: CompletionRequest, state: State, sender: From) -> Response:
    served = state.accepting(body.model)
    answer = TextAnswer(served.name, served.tokenizer, body)
    sequences = await completion_requests(served, body, answer.id, sender)
    generation = _generation(served, body, sequences)
    return await _answer(request, body, answer, generation)


def _generation(served: ServedModel, body: GenerationRequest, sequences: Sequence[EngineRequest]) -> Generation:
    if body.use_beam_search:
        return BeamGeneration(
            served.loop, served.tokenizer, sequences, body.skip_special_tokens, best=body.n, echo=body.echoes
        )
    return Generation(
        served.loop,
        served.tokenizer,
        sequences,
        body.skip_special_tokens,
        choices=body.sequences,
        best=body.n,
        echo=body.echoes,
    )


async def _answer(request: Request, body: GenerationRequest, answer: Answer, generation: Generation) -> Response:
    """The answer to one call. A stream begins with its first text: what fails before that still gets a status."""
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
    whole = answer.whole(texts, generation.usage, generation.prompt_logprobs)
    return Response(whole.model_dump_json(exclude_unset=True), media_type="application/json")
