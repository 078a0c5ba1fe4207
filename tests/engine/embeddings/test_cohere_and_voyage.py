"""Cohere's ``/v2/embed`` and ``/v2/rerank``; what Voyage's client sends to ``/v1/embeddings`` and ``/v1/rerank``."""

import base64
import math
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from paternoster_engine.model.pooling import Pooling
from paternoster_engine.server.embeddings.answers import Vector, convert_vector

TEXTS = ["a cat eats fish and meat", "the stock market fell"]
LONG = "cats eat fish . " * 200
PROMPTS = {"query": "query: ", "passage": "text: ", "Clustering": "cluster: ", "STS": "sts: "}
VECTORS = arrays.arrays(np.float32, st.integers(1, 40).map(lambda n: 8 * n), elements=st.floats(-2, 2, width=32))


async def embed(client: httpx.AsyncClient, **body: Any) -> Any:
    answer = await client.post("/v2/embed", json=body)
    assert answer.status_code == 200, answer.text
    assert "x-paternoster-ignored" not in answer.headers
    return answer.json()


async def embeddings(client: httpx.AsyncClient, **body: Any) -> list[Any]:
    answer = await client.post("/v1/embeddings", json=body)
    assert answer.status_code == 200, answer.text
    assert "x-paternoster-ignored" not in answer.headers
    return [item["embedding"] for item in answer.json()["data"]]


async def test_an_answer_has_what_coheres_has(serve):
    async with serve() as server:
        answer = await embed(server.client, model="minilm", texts=TEXTS, input_type="search_document")
        plain = await embeddings(server.client, input=TEXTS)
        inputs = [{"content": [{"type": "text", "text": part} for part in text.split(" ", 1)]} for text in TEXTS]
        mixed = await embed(server.client, model="minilm", inputs=inputs, input_type="search_document")
        joined = await embed(server.client, texts=[text.replace(" ", "\n", 1) for text in TEXTS])
    assert set(answer) == {"response_type", "id", "embeddings", "texts", "meta"}
    assert answer["embeddings"] == {"float": plain}
    assert answer["texts"] == TEXTS
    assert answer["meta"] == {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 8 + 6}}
    assert mixed["embeddings"] == joined["embeddings"]
    assert "texts" not in mixed


async def test_every_type_of_an_embedding(serve):
    kinds = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    async with serve() as server:
        found = (await embed(server.client, texts=TEXTS, embedding_types=kinds))["embeddings"]
        twice = (await embed(server.client, texts=TEXTS, embedding_types=["int8", "int8"]))["embeddings"]
        ours = {
            kind: await embeddings(server.client, input=TEXTS, output_dtype=kind) for kind in kinds if kind != "base64"
        }
        coded = await embeddings(server.client, input=TEXTS, output_dtype="uint8", encoding_format="base64")
    assert list(found) == kinds
    assert twice == {"int8": found["int8"]}
    assert {kind: found[kind] for kind in ours} == ours
    assert [list(base64.b64decode(text)) for text in coded] == found["uint8"]
    for index in range(len(TEXTS)):
        vector = np.array(found["float"][index], np.float32)
        assert np.frombuffer(base64.b64decode(found["base64"][index]), "<f4").tolist() == vector.tolist()
        assert np.unpackbits(np.array(found["ubinary"][index], np.uint8)).tolist() == (vector > 0).tolist()
        assert [number + 128 for number in found["binary"][index]] == found["ubinary"][index]
        assert [number + 128 for number in found["int8"][index]] == found["uint8"][index]
        near = np.array(found["int8"][index], np.float64)
        assert near @ vector / np.linalg.norm(near) == pytest.approx(1, abs=1e-3)


@given(VECTORS)
@example(np.full(8, 3.5e-44, np.float32))
def test_numbers_of_each_type_are_of_the_vector(vector: Vector) -> None:
    small, unsigned = convert_vector(vector, "int8"), convert_vector(vector, "uint8")
    assert (small.dtype, unsigned.dtype) == (np.int8, np.uint8)
    largest = float(np.abs(vector).max())
    assert np.abs(small.astype(float) * largest / 127 - vector).max() <= largest / 253
    assert (unsigned.astype(int) - 128 == small).all()
    bits = convert_vector(vector, "ubinary")
    assert (np.unpackbits(bits.astype(np.uint8)) == (vector > 0)).all()
    assert (convert_vector(vector, "binary").astype(int) + 128 == bits).all()


async def test_what_a_text_is_for_chooses_the_prompt(serve):
    async with serve(pooling=Pooling("mean", 384, prompts=PROMPTS, prompt="none: ")) as server:
        client = server.client
        for kind, prompt in {
            "search_query": "query: ",
            "query": "query: ",
            "search_document": "text: ",
            "document": "text: ",
            "clustering": "cluster: ",
            "classification": "none: ",
            "STS": "sts: ",
            None: "none: ",
        }.items():
            found = (await embed(client, texts=["cats"], input_type=kind))["embeddings"]["float"]
            assert found == await embeddings(client, input=["cats"], input_type=kind)
            server.state.served.pooling.prompts["exact"] = prompt
            assert found == await embeddings(client, input=["cats"], prompt_name="exact"), kind
            del server.state.served.pooling.prompts["exact"]


async def test_long_texts_are_cut_at_either_end(serve):
    words = [f"cat{i}" for i in range(400)]
    async with serve(pooling=Pooling("mean", 384, prompts={"query": "find this: "})) as server:
        client, encode = server.client, server.state.served.prompts.tokenizer.text_encoding
        most = server.state.served.max_model_len
        ids = encode(" ".join(words)).ids

        async def vector(**more: Any) -> list[float]:
            (found,) = (await embed(client, texts=[" ".join(words)], **more))["embeddings"]["float"]
            return found

        async def of_ids(part: list[int]) -> list[float]:
            return (await embeddings(client, input=[part]))[0]

        start, end = [ids[0], *ids[1 : most - 1], ids[-1]], [ids[0], *ids[1 - most :]]
        assert await vector() == pytest.approx(await of_ids(start), abs=1e-5)
        assert await vector(truncate="END", max_tokens=10**6) == pytest.approx(await of_ids(start), abs=1e-5)
        assert await vector(truncate="START") == pytest.approx(await of_ids(end), abs=1e-5)
        ten = await vector(truncate="START", max_tokens=10)
        assert ten == pytest.approx(await of_ids([ids[0], *ids[-9:]]), abs=1e-5)
        prompt = encode("find this: ").ids[:-1]
        found = await vector(truncate="START", max_tokens=10, input_type="search_query")
        assert found == pytest.approx(await of_ids([*prompt, *ids[len(prompt) - 10 :]]), abs=1e-5)
        billed = (await embed(client, texts=[LONG, "a"], max_tokens=10))["meta"]["billed_units"]
        assert billed == {"input_tokens": 10 + 3}


async def test_voyages_truncation_cuts_texts_and_ids(serve):
    async with serve() as server:
        text, ids = await embeddings(server.client, input=[LONG, [5] * 300], truncation=True)
        same, few = await embeddings(server.client, input=[LONG, [5] * 256], truncate_prompt_tokens=-1)
        for refusing in ({}, {"truncation": False}):
            refused = await server.client.post("/v1/embeddings", json={"input": LONG, **refusing})
            assert refused.status_code == 400
    assert text == pytest.approx(same, abs=1e-5)
    assert ids == pytest.approx(few, abs=1e-5)


async def test_output_dimension(serve):
    async with serve(pooling=Pooling("mean", 384, shortens=True)) as server:
        client = server.client
        (cut,) = (await embed(client, texts=["a"], output_dimension=64))["embeddings"]["float"]
        assert [cut] == await embeddings(client, input="a", dimensions=64)
        assert [cut] == await embeddings(client, input="a", output_dimension=64)
        assert [cut] == await embeddings(client, input="a", dimensions=64, output_dimension=64)
        odd = await client.post(
            "/v2/embed", json={"texts": ["a"], "output_dimension": 9, "embedding_types": ["binary"]}
        )
    assert math.hypot(*cut) == pytest.approx(1, abs=1e-5)
    assert odd.json()["message"] == "embedding_types: binary needs vectors of a multiple of 8 numbers, not of 9"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "texts: give exactly one of texts and inputs, not neither"),
        ({"texts": ["a"], "inputs": [{"content": [{"type": "text", "text": "a"}]}]}, "not both"),
        ({"texts": []}, "texts"),
        ({"texts": [""]}, "texts"),
        ({"texts": "a"}, "texts"),
        ({"inputs": [{"content": []}]}, "content"),
        (
            {"inputs": [{"content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
            "Input should be 'text' (got 'image_url')",
        ),
        ({"images": ["data:image/png;base64,AA=="]}, "images: not supported by this engine"),
        ({"texts": ["a"], "embedding_types": []}, "embedding_types"),
        ({"texts": ["a"], "embedding_types": ["int4"]}, "'ubinary' or 'base64' (got 'int4')"),
        ({"texts": ["a"], "truncate": "MIDDLE"}, "'NONE', 'START' or 'END' (got 'MIDDLE')"),
        ({"texts": ["a"], "max_tokens": 0}, "max_tokens"),
        ({"texts": ["a"], "output_dimension": 64}, "output_dimension: this model's vectors are not made to be cut"),
        ({"texts": ["a"], "input_type": "image"}, "'search_query', 'query', 'search_document'"),
        ({"texts": ["a"], "truncate_prompt_tokens": 5}, "truncate_prompt_tokens: not supported"),
        ({"texts": ["a"], "priority": 1}, "not started with priorities"),
        ({"texts": [LONG], "truncate": "NONE"}, "maximum context length is 256 tokens"),
        (
            {"texts": ["a b c d e"], "truncate": "NONE", "max_tokens": 6},
            "texts: has a text of 7 tokens, of at most the 6",
        ),
        ({"texts": ["a"] * 2049}, "texts"),
    ],
)
async def test_what_is_refused_is_refused_in_coheres_form(serve, body, message):
    async with serve() as server:
        answer = await server.client.post("/v2/embed", json=body)
        assert server.loop.engine.scheduler.counters.computed_tokens == 0
    assert answer.status_code == 400
    assert answer.json() == {"id": answer.headers["x-request-id"], "message": answer.json()["message"]}
    assert message in answer.json()["message"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/embeddings", {"input": "a", "output_dtype": "int4"}, "output_dtype"),
        ("/v1/embeddings", {"input": "a", "output_dimension": 64}, "output_dimension"),
        ("/v1/embeddings", {"input": "a", "dimensions": 384, "output_dimension": 64}, "dimensions"),
        ("/v1/embeddings", {"input": "a", "input_type": "wrong"}, "input_type"),
        ("/v1/embeddings", {"input": "a", "input_type": "query", "prompt_name": "query"}, "prompt_name"),
        ("/v1/embeddings", {"input": "a", "truncation": "yes"}, "truncation"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "top_k": 0}, "top_k"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "top_k": 1, "top_n": 2}, "top_n"),
    ],
)
async def test_errors_are_in_voyages_form_too(serve, path, body, field):
    async with serve() as server:
        answer = await server.client.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["detail"] == answer.json()["error"]["message"]
    assert answer.json()["detail"].startswith(f"{field}: ")


async def test_a_ranking_in_the_form_of_each_vendor(serve):
    body = {"query": "what do cats eat", "documents": [*TEXTS, "dogs like bones"]}
    async with serve() as server:

        async def rank(path: str, **more: Any) -> Any:
            answer = await server.client.post(path, json=body | more)
            assert answer.status_code == 200, answer.text
            assert "x-paternoster-ignored" not in answer.headers
            return answer.json()

        jina, cohere = await rank("/v1/rerank", top_n=2), await rank("/v2/rerank", top_n=2)
        voyage = await rank("/v1/rerank", top_k=2, truncation=True)
        with_texts = await rank("/v1/rerank", top_k=2, return_documents=True)
    results = [(item["index"], item["relevance_score"]) for item in jina["results"]]
    assert [index for index, _ in results] == [0, 2]
    assert [(item["index"], item["relevance_score"]) for item in voyage["data"]] == results
    assert [set(item) for item in voyage["data"]] == [{"index", "relevance_score"}] * 2
    assert (voyage["object"], voyage["usage"]["total_tokens"]) == ("list", jina["usage"]["total_tokens"])
    assert [item["document"] for item in with_texts["data"]] == [TEXTS[0], "dogs like bones"]
    assert [(item["index"], item["relevance_score"]) for item in cohere["results"]] == results
    assert cohere["meta"]["billed_units"] == {"input_tokens": jina["usage"]["total_tokens"]}
    assert "data" not in cohere
