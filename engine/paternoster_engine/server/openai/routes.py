"""The OpenAI API: models, chat completions, completions."""

from collections.abc import Callable, Sequence
from functools import partial

from fastapi import Request, Response

from paternoster_contract.http import paths
from paternoster_engine.core.request import Request as EngineRequest
from paternoster_engine.server.access.identity import From
from paternoster_engine.server.adapters import NamedAdapter
from paternoster_engine.server.bodies.body_route import new_router
from paternoster_engine.server.continuation.journal import StreamJournal
from paternoster_engine.server.continuation.stream_call import new_hex
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
from paternoster_engine.server.openai.answers import ApiResponse, ChatResponse, TextResponse, response_chunks
from paternoster_engine.server.openai.objects import ChatCompletion, ModelCard, ModelList, TextCompletion
from paternoster_engine.server.openai.prompts import chat_requests, completion_requests
from paternoster_engine.server.openai.requests import ChatCompletionRequest, CompletionRequest, GenerationRequest
from paternoster_engine.server.parsers.answer_parser import AnswerParser
from paternoster_engine.server.pieces import json_in_pieces
from paternoster_engine.server.state import ServedModel, ServerState

router = new_router()


@router.get(paths.MODELS)
async def list_models(state: State) -> ModelList:
    served = state.served
    adapters = [] if served.adapters is None else served.adapters.named
    return ModelList(data=[*(_model_card(state, name) for name in served.names), *map(_adapter_card(state), adapters)])


@router.get(paths.MODEL)
async def get_model(model: str, state: State) -> ModelCard:
    adapter = state.find_model(model).adapter
    return _model_card(state, model) if adapter is None else _adapter_card(state)(adapter)


def _model_card(state: ServerState, name: str) -> ModelCard:
    """``name``: one of the served model's; its ``root`` is the first of them."""
    served = state.served
    return ModelCard(
        id=name,
        created=int(state.started_at),
        root=served.name,
        max_model_len=served.max_model_len,
        default_parameters=served.sampling_defaults.list_set_values(),
    )


def _adapter_card(state: ServerState) -> Callable[[NamedAdapter], ModelCard]:
    """Makes the cards of adapters, whose ``root`` is their path or address, as in vLLM."""
    base = _model_card(state, state.served.name)
    return lambda adapter: base.model_copy(
        update={"id": adapter.name, "root": adapter.source, "parent": base.id, "created": adapter.created}
    )


@router.post("/v1/chat/completions", response_model=None, responses={200: {"model": ChatCompletion, **STREAMED}})
async def chat_completions(request: Request, body: ChatCompletionRequest, state: State, sender: From) -> Response:
    served = state.find_target(body.model)
    name = f"chatcmpl-{new_hex()}"
    sequences, ending = await unless_gone(request, chat_requests(served, body, name, sender))
    new_parser = partial(served.answers.format.build_parser, body.callable_tools, ending, body.required_calls)
    return await _respond_to_call(
        request, served, body, sequences, lambda: ChatResponse(name, served, body), new_parser
    )


@router.post("/v1/completions", response_model=None, responses={200: {"model": TextCompletion, **STREAMED}})
async def create_completion(request: Request, body: CompletionRequest, state: State, sender: From) -> Response:
    served = state.find_target(body.model)
    name = f"cmpl-{new_hex()}"
    sequences = await unless_gone(request, completion_requests(served, body, name, sender))
    return await _respond_to_call(request, served, body, sequences, lambda: TextResponse(name, served, body))


async def _respond_to_call(
    request: Request,
    served: ServedModel,
    body: GenerationRequest,
    sequences: Sequence[EngineRequest],
    new_response: Callable[[], ApiResponse],
    new_parser: Callable[[], AnswerParser] | None = None,
) -> Response:
    """Queue ``sequences`` and respond. A stream begins with its first text: what fails before still gets a status."""
    generation = _new_generation(served, body, sequences, new_parser)
    try:
        await generation.start()
        response = new_response()
        if body.stream:
            deltas = generation.stream_deltas()
            first = await unless_gone(request, anext(deltas))
            generation.report_prompts()
            chunks = response_chunks(response, generation, first, deltas, body)
            return EventStream(chunks, generation, data_events if body.num_logprobs is None else long_data_events)
        texts = await unless_gone(request, generation.collect_answers())
        usage = generation.report_prompts()
    except BaseException:
        generation.close()
        raise
    whole = await response.build_answer(texts, usage, generation.prompts)
    return Response(await json_in_pieces(whole, exclude_unset=True), media_type="application/json")


def _new_generation(
    served: ServedModel,
    body: GenerationRequest,
    sequences: Sequence[EngineRequest],
    new_parser: Callable[[], AnswerParser] | None,
) -> Generation:
    if body.use_beam_search:
        return BeamGeneration(
            served.answers,
            sequences,
            body.skip_special_tokens,
            best=body.n,
            echo=body.echoes,
            has_token_ids=body.return_token_ids,
            new_parser=new_parser,
        )
    return Generation(
        served.answers,
        sequences,
        body.skip_special_tokens,
        choices=body.sequences,
        best=body.n,
        echo=body.echoes,
        only_echo=body.only_echoes,
        has_token_ids=body.return_token_ids,
        new_parser=new_parser,
        journal=StreamJournal.of_call(served.fingerprint, served.vocab_size, served.draining),
        is_stream=body.stream,
    )
