"""Vectors made into what clients get."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence

import numpy as np
from numpy.typing import NDArray

from paternoster_engine.model.pooling import Pooling
from paternoster_engine.server.embeddings.objects import EmbeddingObject
from paternoster_engine.server.embeddings.requests import CohereEmbedRequest, Dtype, EmbeddingRequest
from paternoster_engine.server.errors import InvalidValue

Vector = NDArray[np.float32]
LARGEST_INT8 = 127
BITS = 8
"""Numbers of a vector in one of its packed form."""


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


def convert_vector(vector: Vector, dtype: Dtype) -> NDArray[np.float32 | np.int8 | np.uint8]:
    """``vector`` in numbers of ``dtype``. Of itself alone: cosines of int8 are near those of the floats."""
    match dtype:
        case "int8" | "uint8":
            # float32 has no number for 127 / largest where largest is subnormal.
            largest = float(np.abs(vector).max())
            steps = np.rint(vector.astype(np.float64) * (LARGEST_INT8 / largest if largest > 0 else 0))
            return steps.astype(np.int8) if dtype == "int8" else (steps + 128).astype(np.uint8)
        case "binary" | "ubinary":
            packed = np.packbits(vector > 0)
            return packed if dtype == "ubinary" else (packed ^ 128).view(np.int8)
    return vector.astype("<f4", copy=False)


def check_dtypes(pooling: Pooling, dimensions: int | None, field: str, dtypes: Sequence[str]) -> None:
    """Raises :class:`InvalidValue` for bits of vectors that fill no whole bytes."""
    size = dimensions or pooling.size
    packed = next((dtype for dtype in dtypes if dtype in ("binary", "ubinary")), None)
    if packed is not None and size % BITS:
        raise InvalidValue(field, f"{field}: {packed} needs vectors of a multiple of {BITS} numbers, not of {size}")


def check_dimensions(pooling: Pooling, dimensions: int | None, field: str = "dimensions") -> None:
    """Raises :class:`InvalidValue` for vectors that the model does not give; ``field``: which asks for them."""
    if dimensions is None or dimensions == pooling.size:
        return
    if not pooling.shortens:
        allowed = f"this model's vectors are not made to be cut: leave it out or send {pooling.size}"
    elif dimensions > pooling.size or (pooling.sizes and dimensions not in pooling.sizes):
        allowed = f"must be one of {', '.join(map(str, pooling.sizes))}" if pooling.sizes else f"1 to {pooling.size}"
    else:
        return
    raise InvalidValue(field, f"{field}: {allowed} (got {dimensions})")


async def embedding_objects(
    body: EmbeddingRequest, vectors: Sequence[Sequence[float]]
) -> AsyncIterator[EmbeddingObject]:
    """One by one: others have their turn in between."""
    for index, numbers in enumerate(vectors):
        vector = convert_vector(as_vector(numbers, body.dimensions), body.output_dtype)
        encoded = b64encode(vector.tobytes()).decode() if body.encoding_format == "base64" else None
        yield EmbeddingObject(index=index, embedding=vector.tolist() if encoded is None else encoded)
        if index % 16 == 15:
            await asyncio.sleep(0)


async def typed_embeddings(body: CohereEmbedRequest, vectors: Sequence[Sequence[float]]) -> AsyncIterator[str]:
    """JSON of ``embeddings`` in pieces, each of which ends with a whole vector; others have their turn in between."""
    separator = "{"
    for kind in dict.fromkeys(body.embedding_types):
        yield f'{separator}"{kind}":['
        for index, numbers in enumerate(vectors):
            vector = as_vector(numbers, body.output_dimension)
            if kind == "base64":
                value: object = b64encode(convert_vector(vector, "float").tobytes()).decode()
            else:
                value = convert_vector(vector, kind).tolist()
            yield ("," if index else "") + json.dumps(value, separators=(",", ":"))
            if index % 16 == 15:
                await asyncio.sleep(0)
        yield "]"
        separator = ","
    yield "}"
