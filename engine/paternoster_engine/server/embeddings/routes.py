"""The API of models that embed: embeddings, rerank, score."""

import uuid
from collections.abc import Awaitable, Mapping, Sequence
from time import time
from typing import Any

from fastapi import Request, Response

from paternoster_engine.core.request import Request as EngineRequest
from paternoster_engine.model.pooling import Pooling
from paternoster_engine.server.access.identity import Caller, From
from paternoster_engine.server.bodies.body_route import new_router
from paternoster_engine.server.dependencies import State
from paternoster_engine.server.embeddings.answers import (
    check_dimensions,
    check_dtypes,
    cosine_similarity,
    embedding_objects,
    typed_embeddings,
)
from paternoster_engine.server.embeddings.objects import (
    BilledUnits,
    CohereEmbeddings,
    CohereError,
    CohereMeta,
    CohereRanking,
    EmbeddingList,
    RankedDocument,
    RankedResult,
    Ranking,
    ScoreList,
    ScoreObject,
    TextUsage,
    TypedEmbeddings,
    VoyageResult,
)
from paternoster_engine.server.embeddings.requests import (
    CohereEmbedRequest,
    EmbeddingRequest,
    PairsRequest,
    RerankRequest,
    ScoreRequest,
    VectorRequest,
)
from paternoster_engine.server.embeddings.texts import Cut, TextInput, text_requests
from paternoster_engine.server.embeddings.vector_work import VectorWork
from paternoster_engine.server.error_responses import RESPONSES
from paternoster_engine.server.errors import InvalidValue, WrongTask
from paternoster_engine.server.generation.streaming import unless_gone
from paternoster_engine.server.state import ServedModel, ServerState

INPUT_TYPES: Mapping[str, Sequence[str]] = {
    "search_query": (queries := ("search_query", "query")),
    "query": queries,
    "search_document": (documents := ("search_document", "document", "passage")),
    "document": documents,
    "passage": documents,
    "classification": ("classification",),
    "clustering": ("clustering",),
}
"""Values of Cohere, Voyage and NVIDIA, and names that models give to their prompts for each, in small letters."""
REFUSED: dict[int | str, dict[str, Any]] = {
    status: {"model": CohereError, "description": response["description"]} for status, response in RESPONSES.items()
}
"""Failures of Cohere's paths in the OpenAPI document."""
router = new_router()


@router.post("/v1/embeddings", response_model=None, responses={200: {"model": EmbeddingList}})
async def create_embeddings(request: Request, body: EmbeddingRequest, state: State, sender: From) -> Response:
    served, pooling = _find_embedding(state, body)
    _check_embeds(pooling)
    check_dimensions(pooling, body.dimensions, "dimensions" if body.output_dimension is None else "output_dimension")
    check_dtypes(pooling, body.dimensions, "output_dtype", [body.output_dtype])
    prompt = _find_prompt(pooling, body.prompt_name) if body.input_type is None else _input_prompt(pooling, body)
    cut = Cut(served.max_model_len) if body.truncation else Cut()
    texts = [
        TextInput(prompt + text, cut) if isinstance(text, str) else TextInput(text[: cut.most] if cut.most else text)
        for text in body.input
    ]
    name = f"embd-{uuid.uuid4().hex}"
    vectors, usage = await _compute_vectors(request, served, text_requests(served, body, "input", texts, name, sender))
    objects = [item.model_dump_json() async for item in embedding_objects(body, vectors)]
    whole = EmbeddingList(data=[], model=served.name, usage=usage).model_dump_json()
    # What is long was made piece by piece.
    return Response(whole.replace('"data":[]', f'"data":[{",".join(objects)}]', 1), media_type="application/json")


@router.post("/v2/embed", response_model=None, responses={200: {"model": CohereEmbeddings}, **REFUSED})
async def embed_texts(request: Request, body: CohereEmbedRequest, state: State, sender: From) -> Response:
    served, pooling = _find_embedding(state, body)
    _check_embeds(pooling)
    check_dimensions(pooling, body.output_dimension, "output_dimension")
    check_dtypes(pooling, body.output_dimension, "embedding_types", body.embedding_types)
    field, texts = body.read_texts()
    prompt = _input_prompt(pooling, body)
    most = min(body.max_tokens or served.max_model_len, served.max_model_len)
    cut = Cut() if body.truncate == "NONE" else Cut(most, after=prompt if body.truncate == "START" else None)
    limit = None if body.max_tokens is None or body.truncate != "NONE" else ("max_tokens", body.max_tokens)
    name = f"embd-{uuid.uuid4().hex}"
    given = [TextInput(prompt + text, cut) for text in texts]
    vectors, usage = await _compute_vectors(
        request, served, text_requests(served, body, field, given, name, sender, limit=limit)
    )
    typed = "".join([piece async for piece in typed_embeddings(body, vectors)])
    meta = CohereMeta(billed_units=BilledUnits(input_tokens=usage.total_tokens))
    whole = CohereEmbeddings(id=name, embeddings=TypedEmbeddings(), texts=body.texts, meta=meta)
    # What is long was made piece by piece.
    text = whole.model_dump_json(exclude_none=True).replace('"embeddings":{}', f'"embeddings":{typed}', 1)
    return Response(text, media_type="application/json")


@router.post("/v2/rerank", response_model_exclude_none=True, responses=REFUSED)
async def rerank_documents_for_cohere(
    request: Request, body: RerankRequest, state: State, sender: From
) -> CohereRanking:
    ranking = await rerank_documents(request, body, state, sender)
    meta = CohereMeta(billed_units=BilledUnits(input_tokens=ranking.usage.total_tokens))
    return CohereRanking(id=ranking.id, model=ranking.model, results=ranking.results, usage=ranking.usage, meta=meta)


@router.post("/rerank", response_model_exclude_none=True)
@router.post("/v1/rerank", response_model_exclude_none=True)
async def rerank_documents(request: Request, body: RerankRequest, state: State, sender: From) -> Ranking:
    served, pooling = _find_embedding(state, body)
    name, texts = f"rerank-{uuid.uuid4().hex}", body.texts
    query, documents = body.query, texts
    if not pooling.scores:
        query = _first_prompt(pooling, "query") + query
        documents = [_first_prompt(pooling, "document", "passage") + text for text in texts]
    scores, usage = await _compute_scores(
        request, served, body, ("query", "documents"), ([query], documents), name, sender
    )
    best = sorted(range(len(texts)), key=lambda index: -scores[index])[: body.top_n or None]
    results = [
        RankedResult(
            index=index,
            relevance_score=scores[index],
            document=RankedDocument(text=texts[index]) if body.return_documents else None,
        )
        for index in best
    ]
    # Voyage's answers have no documents by default, and Jina's have.
    shown = body.return_documents and "return_documents" in body.model_fields_set
    data = [
        VoyageResult(
            index=each.index,
            relevance_score=each.relevance_score,
            document=each.document.text if each.document is not None and shown else None,
        )
        for each in results
    ]
    return Ranking(id=name, model=served.name, results=results, data=data, usage=usage)


@router.post("/score")
@router.post("/v1/score")
async def score_texts(request: Request, body: ScoreRequest, state: State, sender: From) -> ScoreList:
    served, pooling = _find_embedding(state, body)
    name = f"score-{uuid.uuid4().hex}"
    prompt = "" if pooling.scores else pooling.prompt
    queries, documents, *fields = body.read_pairs()
    first, second = ([prompt + text for text in texts] for texts in (queries, documents))
    scores, usage = await _compute_scores(request, served, body, fields, (first, second), name, sender)
    data = [ScoreObject(index=index, score=each) for index, each in enumerate(scores)]
    return ScoreList(id=name, created=int(time()), model=served.name, data=data, usage=usage)


def _find_embedding(state: ServerState, body: VectorRequest) -> tuple[ServedModel, Pooling]:
    served = state.find_target(body.model, embeds=True)
    assert served.pooling is not None
    return served, served.pooling


def _check_embeds(pooling: Pooling) -> None:
    if pooling.scores:
        raise WrongTask("This model scores pairs of texts; it does not embed. Use /v1/rerank or /v1/score.")


def _input_prompt(pooling: Pooling, body: EmbeddingRequest | CohereEmbedRequest) -> str:
    """Prompt before texts that are for ``input_type``; the default prompt where the model has none for it."""
    kind = body.input_type
    if kind is None or kind in pooling.prompts:
        return _find_prompt(pooling, kind)
    if kind not in INPUT_TYPES:
        own = [name for name in pooling.prompts if name not in INPUT_TYPES]
        allowed = ", ".join(map(repr, (*INPUT_TYPES, *own)))
        raise InvalidValue("input_type", f"input_type: must be one of {allowed} (got {kind[:100]!r})")
    names = {name.casefold(): name for name in pooling.prompts}
    return _first_prompt(pooling, *(names[name] for name in INPUT_TYPES[kind] if name in names))


def _find_prompt(pooling: Pooling, name: str | None) -> str:
    if name is None:
        return pooling.prompt
    if name not in pooling.prompts:
        allowed = ", ".join(map(repr, pooling.prompts)) or "none"
        raise InvalidValue("prompt_name", f"prompt_name: this model's prompts are {allowed} (got {name[:100]!r})")
    return pooling.prompts[name]


def _first_prompt(pooling: Pooling, *names: str) -> str:
    return next((pooling.prompts[name] for name in names if name in pooling.prompts), pooling.prompt)


async def _compute_scores(
    request: Request,
    served: ServedModel,
    body: PairsRequest,
    fields: Sequence[str],
    texts: tuple[Sequence[str], Sequence[str]],
    name: str,
    sender: Caller,
) -> tuple[list[float], TextUsage]:
    """Score each document with its own query, or with the only one: cosines, where the model only embeds.

    ``fields``: what the body calls queries and documents. ``texts``: these.
    """
    assert served.pooling is not None
    first, second = texts
    of_query, of_document = body.max_tokens_per_query or None, body.max_tokens_per_doc or None
    whole = served.max_model_len if body.cuts_documents else None
    if served.pooling.scores:
        pairs = [(first[index if len(first) > 1 else 0], text) for index, text in enumerate(second)]
        given = [TextInput(pair, Cut(whole, (of_query, of_document), keep_first=True)) for pair in pairs]
    else:
        given = [TextInput(text, Cut(None, (of_query,))) for text in first]
        given += [TextInput(text, Cut(whole, (of_document,))) for text in second]
    if body.cuts_documents:
        # Of documents nothing is too long then.
        made = text_requests(served, body, fields[1], given, name, sender, too_long=fields[0])
    else:
        made = text_requests(served, body, fields[1], given, name, sender)
    vectors, usage = await _compute_vectors(request, served, made)
    if served.pooling.scores:
        return [vector[0] for vector in vectors], usage
    ahead = len(first)
    scores = [cosine_similarity(vectors[i if ahead > 1 else 0], vectors[ahead + i]) for i in range(len(second))]
    return scores, usage


async def _compute_vectors(
    request: Request, served: ServedModel, requests: Awaitable[Sequence[EngineRequest]]
) -> tuple[list[Sequence[float]], TextUsage]:
    work = VectorWork(served.loop, await unless_gone(request, requests))
    try:
        vectors = await unless_gone(request, work.collect_vectors())
    finally:
        work.close()
    return vectors, TextUsage(prompt_tokens=work.num_tokens, total_tokens=work.num_tokens)
