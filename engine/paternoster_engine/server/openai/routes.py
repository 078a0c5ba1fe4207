"""The OpenAI API: models, chat completions, completions."""

from collections.abc import Callable, Sequence

from fastapi import Request, Response

from paternoster_contract.http import paths
from paternoster_engine.core.request import Request as EngineRequest
from paternoster_engine.server.access.identity import From
from paternoster_engine.server.bodies.body_route import new_router
from paternoster_engine.server.dependencies import State
from paternoster_engine.server.generation.beam_generation import BeamGeneration
from paternoster_engine.server.generation.generation import Generation
from paternoster_engine.server.generation.streaming import (
    STREAMED,
    EventStream,
    data_events,
    long_data_events,
    unless_gone,
)
from paternoster_engine.server.openai.answers import ApiResponse, ChatResponse, TextResponse, frames
from paternoster_engine.server.openai.objects import ChatCompletion, ModelCard, ModelList, TextCompletion
from paternoster_engine.server.openai.prompts import chat_requests, completion_requests
from paternoster_engine.server.openai.requests import ChatCompletionRequest, CompletionRequest, GenerationRequest
from paternoster_engine.server.parsers.answer_parser import AnswerParser
from paternoster_engine.server.pieces import json_in_pieces
from paternoster_engine.server.state import ServedModel, ServerState

router = new_router()


@router.get(paths.MODELS)
async def models(state: State) -> ModelList:
    return ModelList(data=[_model_card(state, name) for name in state.served.names])


@router.get(paths.MODEL)
async def model(model: str, state: State) -> ModelCard:
    state.named(model)
    return _model_card(state, model)


def _model_card(state: ServerState, name: str) -> ModelCard:
    """``name``: one of the served model's; its ``root`` is the first of them."""
    served = state.served
    return ModelCard(
        id=name,
        created=int(state.started_at),
        root=served.name,
        max_model_len=served.max_model_len,
        default_parameters=served.sampling_defaults.values(),
    )


@router.post("/v1/chat/completions", response_model=None, responses={200: {"model": ChatCompletion, **STREAMED}})
async def chat_completions(request: Request, body: ChatCompletionRequest, state: State, sender: From) -> Response:
    served = state.accepting(body.model)
    response = ChatResponse(served, body)
    sequences, prompt = await unless_gone(request, chat_requests(served, body, response.id, sender))
    form = served.answer_format
    generation = _new_generation(
        served, body, sequences, lambda: form.parser(body.callable_tools, prompt, body.required_calls)
    )
    return await _respond_to_call(request, body, response, generation)


@router.post("/v1/completions", response_model=None, responses={200: {"model": TextCompletion, **STREAMED}})
async def completions(request: Request, body: CompletionRequest, state: State, sender: From) -> Response:
    served = state.accepting(body.model)
    response = TextResponse(served, body)
    sequences = await unless_gone(request, completion_requests(served, body, response.id, sender))
    generation = _new_generation(served, body, sequences)
    return await _respond_to_call(request, body, response, generation)


def _new_generation(
    served: ServedModel,
    body: GenerationRequest,
    sequences: Sequence[EngineRequest],
    new_parser: Callable[[], AnswerParser] | None = None,
) -> Generation:
    if body.use_beam_search:
        return BeamGeneration(
            served.loop,
            served.tokenizer,
            sequences,
            body.skip_special_tokens,
            best=body.n,
            echo=body.echoes,
            tells_ids=body.return_token_ids,
            new_parser=new_parser,
        )
    return Generation(
        served.loop,
        served.tokenizer,
        sequences,
        body.skip_special_tokens,
        choices=body.sequences,
        best=body.n,
        echo=body.echoes,
        only_echo=body.only_echoes,
        tells_ids=body.return_token_ids,
        new_parser=new_parser,
    )


async def _respond_to_call(
    request: Request, body: GenerationRequest, response: ApiResponse, generation: Generation
) -> Response:
    """The response to one call. A stream begins with its first text: what fails before that still gets a status."""
    try:
        await generation.start()
        if body.stream:
            deltas = generation.deltas()
            first = await unless_gone(request, anext(deltas))
            told = frames(response, generation, first, deltas, body)
            return EventStream(told, generation, data_events if body.num_logprobs is None else long_data_events)
        texts = await unless_gone(request, generation.complete())
    except BaseException:
        generation.close()
        raise
    whole = await response.whole(texts, generation.usage, generation.prompts)
    return Response(await json_in_pieces(whole, exclude_unset=True), media_type="application/json")
