"""What clients get."""

from typing import Literal

from pydantic import BaseModel


class TextUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingObject(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingList(BaseModel):
    """Answer of ``POST /v1/embeddings``."""

    object: Literal["list"] = "list"
    data: list[EmbeddingObject]
    model: str
    usage: TextUsage


class RankedDocument(BaseModel):
    text: str


class RankedResult(BaseModel):
    index: int
    """Of the document in the request."""
    relevance_score: float
    document: RankedDocument | None = None


class Ranking(BaseModel):
    """Answer of ``POST /v1/rerank``, the best first."""

    id: str
    model: str
    results: list[RankedResult]
    usage: TextUsage


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
