"""Cohere's and Voyage's own clients with a model that embeds; run in their environment, with an engine's URL."""

import math
import sys
from collections.abc import Callable, Sequence

URL, MODEL = sys.argv[1], sys.argv[2]
KEY = sys.argv[3] if len(sys.argv) > 3 else "none"
QUERY = "what do cats eat"
DOCUMENTS = ["the stock market fell", "a cat eats fish and meat", "dogs like bones"]
LONG = "word " * 4000


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True)) / math.hypot(*first) / math.hypot(*second)


def raised_by(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def cohere() -> int:
    """Embeddings of every type, a ranking, and errors with the statuses and messages of the engine."""
    import cohere as library

    client = library.ClientV2(api_key=KEY, base_url=URL)
    kinds = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    of_query = client.embed(model=MODEL, input_type="search_query", texts=[QUERY], embedding_types=["float"])
    (query,) = of_query.embeddings.float_
    found = client.embed(model=MODEL, input_type="search_document", texts=DOCUMENTS, embedding_types=kinds)
    vectors = found.embeddings
    cosines = [cosine(query, vector) for vector in vectors.float_]
    assert max(range(3), key=cosines.__getitem__) == 1, cosines
    for floats, small in zip(vectors.float_, vectors.int8, strict=True):
        assert cosine(floats, small) > 0.999
    for floats, bits in zip(vectors.float_, vectors.ubinary, strict=True):
        signs = [byte >> (7 - place) & 1 for byte in bits for place in range(8)]
        assert signs == [number > 0 for number in floats]
    assert found.texts == DOCUMENTS
    assert found.meta.billed_units.input_tokens > 0
    inputs = [{"content": [{"type": "text", "text": DOCUMENTS[0]}]}]
    same = client.embed(model=MODEL, input_type="search_document", inputs=inputs, embedding_types=["float"])
    assert cosine(same.embeddings.float_[0], vectors.float_[0]) > 0.9999
    ranking = client.rerank(model=MODEL, query=QUERY, documents=DOCUMENTS, top_n=2)
    assert [item.index for item in ranking.results] == sorted(range(3), key=lambda i: -cosines[i])[:2]
    long = raised_by(lambda: client.embed(model=MODEL, input_type="search_query", texts=[LONG], truncate="NONE"))
    assert isinstance(long, library.BadRequestError), long
    assert "maximum context length" in long.body["message"]
    unknown = raised_by(lambda: client.embed(model="unknown", input_type="search_query", texts=["a"]))
    assert isinstance(unknown, library.NotFoundError), unknown
    assert "`unknown` does not exist" in unknown.body["message"]
    return len(kinds) + 3


def voyage() -> int:
    """Embeddings of every type, a ranking, and errors that the client takes for what they are."""
    import voyageai

    client = voyageai.Client(api_key=KEY, base_url=f"{URL}/v1")
    (query,) = client.embed([QUERY], model=MODEL, input_type="query").embeddings
    floats = client.embed(DOCUMENTS, model=MODEL, input_type="document").embeddings
    cosines = [cosine(query, vector) for vector in floats]
    assert max(range(3), key=cosines.__getitem__) == 1, cosines
    by_type = {
        kind: client.embed(DOCUMENTS, model=MODEL, input_type="document", output_dtype=kind).embeddings
        for kind in ("int8", "uint8", "binary", "ubinary")
    }
    for index, vector in enumerate(floats):
        assert cosine(vector, by_type["int8"][index]) > 0.999
        assert [number - 128 for number in by_type["uint8"][index]] == by_type["int8"][index]
        assert [number - 128 for number in by_type["ubinary"][index]] == by_type["binary"][index]
        assert 8 * len(by_type["binary"][index]) == len(vector)
    assert client.embed([LONG], model=MODEL).total_tokens < 1000, "it is cut by default"
    ranking = client.rerank(QUERY, DOCUMENTS, model=MODEL, top_k=2)
    assert [item.index for item in ranking.results] == sorted(range(3), key=lambda i: -cosines[i])[:2]
    assert ranking.total_tokens > 0
    long = raised_by(lambda: client.embed([LONG], model=MODEL, truncation=False))
    assert isinstance(long, voyageai.error.InvalidRequestError), long
    assert "maximum context length" in str(long)
    return len(by_type) + 4


VENDORS: tuple[Callable[[], int], ...] = (cohere, voyage)

if __name__ == "__main__":
    for vendor in VENDORS:
        print(f"{vendor.__name__}: {vendor()} answers", flush=True)
