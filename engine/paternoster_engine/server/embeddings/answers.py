"""Vectors made into what clients get."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence

import numpy as np
from numpy.typing import NDArray

from paternoster_engine.model.pooling import Pooling
from paternoster_engine.server.embeddings.objects import EmbeddingObject
from paternoster_engine.server.embeddings.requests import EmbeddingRequest
from paternoster_engine.server.errors import InvalidValue

Vector = NDArray[np.float32]


def as_vector(numbers: Sequence[float], dimensions: int | None = None) -> Vector:
    """``numbers``, or the first ``dimensions`` of them made of length 1 again."""
    vector: Vector = np.asarray(numbers, dtype=np.float32)
    if dimensions is None or dimensions == len(vector):
        return vector
    cut: Vector = vector[:dimensions]
    length = np.linalg.norm(cut)
    return cut / length if length > 0 else cut


def cosine_similarity(first: Sequence[float], second: Sequence[float]) -> float:
    """-1 to 1; 0 where a vector has no direction."""
    a, b = as_vector(first).astype(np.float64), as_vector(second).astype(np.float64)
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return max(-1.0, min(1.0, float(a @ b) / lengths)) if lengths > 0 else 0.0


def check_dimensions(pooling: Pooling, dimensions: int | None) -> None:
    """Raises :class:`InvalidValue` for vectors that the model does not give."""
    if dimensions is None or dimensions == pooling.size:
        return
    if not pooling.shortens:
        allowed = f"this model's vectors are not made to be cut: leave it out or send {pooling.size}"
    elif dimensions > pooling.size or (pooling.sizes and dimensions not in pooling.sizes):
        allowed = f"must be one of {', '.join(map(str, pooling.sizes))}" if pooling.sizes else f"1 to {pooling.size}"
    else:
        return
    raise InvalidValue("dimensions", f"dimensions: {allowed} (got {dimensions})")


async def embedding_objects(
    body: EmbeddingRequest, vectors: Sequence[Sequence[float]]
) -> AsyncIterator[EmbeddingObject]:
    """One by one: others have their turn in between."""
    for index, numbers in enumerate(vectors):
        vector = as_vector(numbers, body.dimensions)
        encoded = b64encode(vector.astype("<f4").tobytes()).decode() if body.encoding_format == "base64" else None
        yield EmbeddingObject(index=index, embedding=vector.tolist() if encoded is None else encoded)
        if index % 16 == 15:
            await asyncio.sleep(0)
