"""The API of models that embed: embeddings, rerank, score."""

import uuid
from collections.abc import Awaitable, Sequence
from time import time

from fastapi import Request, Response

from paternoster_engine.core.request import Request as EngineRequest
from paternoster_engine.model.pooling import Pooling
from paternoster_engine.server.access.identity import Caller, From
from paternoster_engine.server.bodies.body_route import new_router
from paternoster_engine.server.dependencies import State
from paternoster_engine.server.embeddings.answers import check_dimensions, cosine_similarity, embedding_objects
from paternoster_engine.server.embeddings.objects import (
    EmbeddingList,
    RankedDocument,
    RankedResult,
    Ranking,
    ScoreList,
    ScoreObject,
    TextUsage,
)
from paternoster_engine.server.embeddings.requests import (
    EmbeddingRequest,
    PairsRequest,
    RerankRequest,
    ScoreRequest,
    VectorRequest,
)
from paternoster_engine.server.embeddings.texts import Cut, Given, text_requests
from paternoster_engine.server.embeddings.vector_work import VectorWork
from paternoster_engine.server.errors import InvalidValue, WrongTask
from paternoster_engine.server.generation.streaming import unless_gone
from paternoster_engine.server.state import ServedModel, ServerState

router = new_router()


@router.post("/v1/embeddings", response_model=None, responses={200: {"model": EmbeddingList}})
async def create_embeddings(request: Request, body: EmbeddingRequest, state: State, sender: From) -> Response:
    served, pooling = _find_embedding(state, body)
    if pooling.scores:
        raise WrongTask("This model scores pairs of texts; it does not embed. Use /v1/rerank or /v1/score.")
    check_dimensions(pooling, body.dimensions)
    prompt = _find_prompt(pooling, body.prompt_name)
    texts = [prompt + text if isinstance(text, str) else text for text in body.input]
    name = f"embd-{uuid.uuid4().hex}"
    vectors, usage = await _compute_vectors(
        request, served, text_requests(served, body, "input", [*map(Given, texts)], name, sender)
    )
    objects = [item.model_dump_json() async for item in embedding_objects(body, vectors)]
    whole = EmbeddingList(data=[], model=served.name, usage=usage).model_dump_json()
    # What is long was made piece by piece.
    return Response(whole.replace('"data":[]', f'"data":[{",".join(objects)}]', 1), media_type="application/json")


@router.post("/rerank", response_model_exclude_none=True)
@router.post("/v2/rerank", response_model_exclude_none=True)
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
    return Ranking(id=name, model=served.name, results=results, usage=usage)


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
    """Of each document with its own query, or with the only one: cosines, where the model only embeds.

    ``fields``: what the body calls queries and documents. ``texts``: these.
    """
    assert served.pooling is not None
    first, second = texts
    of_query, of_document = body.max_tokens_per_query or None, body.max_tokens_per_doc or None
    whole = served.max_model_len if body.cuts_documents else None
    if served.pooling.scores:
        pairs = [(first[index if len(first) > 1 else 0], text) for index, text in enumerate(second)]
        given = [Given(pair, Cut(whole, (of_query, of_document), keep_first=True)) for pair in pairs]
    else:
        given = [Given(text, Cut(None, (of_query,))) for text in first]
        given += [Given(text, Cut(whole, (of_document,))) for text in second]
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
