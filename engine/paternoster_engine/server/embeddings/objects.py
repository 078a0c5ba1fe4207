"""What clients get."""

import builtins
from typing import Literal

from pydantic import BaseModel


class TextUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingObject(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | list[int] | str


class EmbeddingList(BaseModel):
    """Answer of ``POST /v1/embeddings``."""

    object: Literal["list"] = "list"
    data: list[EmbeddingObject]
    model: str
    usage: TextUsage


class BilledUnits(BaseModel):
    input_tokens: int


class ApiVersion(BaseModel):
    version: Literal["2"] = "2"


class CohereMeta(BaseModel):
    """Metadata of an answer of Cohere's API."""

    api_version: ApiVersion = ApiVersion()
    billed_units: BilledUnits


class TypedEmbeddings(BaseModel):
    """Vectors in each form that a request names, in the order of its texts."""

    float: list[list[builtins.float]] | None = None
    int8: list[list[int]] | None = None
    uint8: list[list[int]] | None = None
    binary: list[list[int]] | None = None
    ubinary: list[list[int]] | None = None
    base64: list[str] | None = None


class CohereEmbeddings(BaseModel):
    """Answer of ``POST /v2/embed``."""

    response_type: Literal["embeddings_by_type"] = "embeddings_by_type"
    id: str
    embeddings: TypedEmbeddings
    texts: list[str] | None = None
    meta: CohereMeta


class CohereError(BaseModel):
    """Failures of Cohere's API; :mod:`paternoster_http.errors.vendor_errors` makes them."""

    id: str | None = None
    message: str


class RankedDocument(BaseModel):
    text: str


class RankedResult(BaseModel):
    index: int
    """Index of the document in the request."""
    relevance_score: float
    document: RankedDocument | None = None


class VoyageResult(BaseModel):
    index: int
    """Index of the document in the request."""
    relevance_score: float
    document: str | None = None


class Ranking(BaseModel):
    """Answer of ``POST /v1/rerank``, the best first, in the form of Jina's API and in that of Voyage's."""

    id: str
    object: Literal["list"] = "list"
    model: str
    results: list[RankedResult]
    data: list[VoyageResult]
    """Results as Voyage has them, equal to ``results``."""
    usage: TextUsage


class CohereRanking(BaseModel):
    """Answer of ``POST /v2/rerank``, the best first."""

    id: str
    model: str
    results: list[RankedResult]
    usage: TextUsage
    meta: CohereMeta


class ScoreObject(BaseModel):
    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreList(BaseModel):
    """Answer of ``POST /v1/score``."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[ScoreObject]
    usage: TextUsage
