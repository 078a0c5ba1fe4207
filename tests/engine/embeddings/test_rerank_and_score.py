"""``/v1/rerank`` and ``/v1/score``: cosines of a model that embeds, and the scores of one that reads pairs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.embeddings import tiny_encoders as tiny

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.model.pooling import Pooling

QUERY = "what do cats eat"
DOCUMENTS = ["the stock market fell", "a cat eats fish and meat", "dogs like bones"]


async def scores(client: Any, first: Any, second: Any) -> list[float]:
    answer = await client.post("/v1/score", json={"text_1": first, "text_2": second})
    assert answer.status_code == 200, answer.text
    return [item["score"] for item in answer.json()["data"]]


async def cosines(client: Any, query: str, documents: list[str]) -> list[float]:
    answer = await client.post("/v1/embeddings", json={"input": [query, *documents]})
    first, *others = [item["embedding"] for item in answer.json()["data"]]
    return [sum(a * b for a, b in zip(first, other, strict=True)) for other in others]


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
async def test_documents_come_best_first(serve, path):
    async with serve() as server:
        expected = await cosines(server.client, QUERY, DOCUMENTS)
        answer = await server.client.post(path, json={"query": QUERY, "documents": DOCUMENTS})
    body = answer.json()
    order = sorted(range(3), key=lambda i: -expected[i])
    assert order[0] == 1
    assert [item["index"] for item in body["results"]] == order
    assert [item["relevance_score"] for item in body["results"]] == pytest.approx(
        [expected[i] for i in order], abs=1e-5
    )
    assert [item["document"]["text"] for item in body["results"]] == [DOCUMENTS[i] for i in order]
    assert body["usage"]["total_tokens"] > 0
    assert body["model"] == "minilm"


async def test_fewer_documents_and_none_of_their_texts(serve):
    async with serve() as server:
        request_body = {
            "query": QUERY,
            "documents": [{"text": text} for text in DOCUMENTS],
            "top_n": 2,
            "return_documents": False,
        }
        body = (await server.client.post("/v1/rerank", json=request_body)).json()
        whole = (await server.client.post("/v1/rerank", json=request_body | {"top_n": 0})).json()
    assert len(whole["results"]) == len(DOCUMENTS)
    assert [set(item) for item in body["results"]] == [{"index", "relevance_score"}] * 2
    assert body["results"][0]["index"] == 1


async def test_prompts_of_queries_and_of_documents(serve):
    prompts = Pooling("mean", 384, prompts={"query": "search query: ", "passage": "text: "})
    async with serve(pooling=prompts) as server:
        body = (await server.client.post("/v1/rerank", json={"query": "cats", "documents": ["dogs"]})).json()
    async with serve() as server:
        expected = await cosines(server.client, "search query: cats", ["text: dogs"])
    assert body["results"][0]["relevance_score"] == pytest.approx(expected[0], abs=1e-5)


async def test_score_of_one_with_each_and_of_pairs(serve):
    async with serve() as server:
        expected = await cosines(server.client, QUERY, DOCUMENTS)
        one = await scores(server.client, QUERY, DOCUMENTS)
        pairs = await scores(server.client, [DOCUMENTS[0], QUERY], [QUERY, DOCUMENTS[1]])
        single = await scores(server.client, QUERY, QUERY)
        answer = await server.client.post("/score", json={"text_1": QUERY, "text_2": DOCUMENTS})
    assert [item["score"] for item in answer.json()["data"]] == one
    assert one == pytest.approx(expected, abs=1e-5)
    assert pairs == pytest.approx(expected[:2], abs=1e-5)
    assert single == pytest.approx([1.0], abs=1e-6)


@pytest.mark.parametrize(
    ("first", "second"), [("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2")]
)
async def test_every_name_that_vllm_has_for_the_texts_of_a_score(serve, first, second):
    async with serve() as server:
        answer = await server.client.post("/v1/score", json={first: QUERY, second: DOCUMENTS})
        assert "x-paternoster-ignored" not in answer.headers
        scores_of_texts = [item["score"] for item in answer.json()["data"]]
        assert scores_of_texts == await scores(server.client, QUERY, DOCUMENTS)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/rerank", {"query": "a", "documents": []}, "documents"),
        ("/v1/rerank", {"query": "", "documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "a", "documents": ["a"] * 2049}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": -1}, "top_n"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "activation": False}, "activation"),
        ("/v1/rerank", {"query": "a", "documents": ["word " * 300], "truncate": False}, None),
        ("/v1/rerank", {"query": "a", "documents": ["word " * 300], "truncation": False}, None),
        ("/v1/rerank", {"query": "word " * 300, "documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "max_tokens_per_doc": -1}, "max_tokens_per_doc"),
        ("/v1/score", {"queries": "word " * 300, "documents": "a", "truncate": True}, "queries"),
        ("/v1/score", {"text_1": "word " * 300, "text_2": "a", "truncate": True}, "text_1"),
        ("/v1/score", {"text_1": [], "text_2": "a"}, "text_1"),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"),
        ("/v1/score", {"text_1": "a"}, "documents"),
        ("/v1/score", {"text_1": "a", "queries": "a", "documents": "b"}, "queries"),
        ("/v1/score", {"queries": "a", "documents": ["word " * 300]}, None),
    ],
)
async def test_what_is_refused(serve, path, body, field):
    async with serve() as server:
        answer = await server.client.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


async def test_a_cross_encoder_scores_pairs_as_transformers_does(serve, tmp_path: Path):
    theirs = tiny.make("bert", head=True)
    tiny.save(theirs, tmp_path)
    engine, tokenizer, model = build_engine(EngineArgs(model=tmp_path.as_uri(), threads=1, dtype="float32"))
    documents = ["the cats walked over the dog .", "a", "run , run ?"]
    async with serve(pooling=model.pooling, tokenizer=tokenizer, runner=engine.runner, max_model_len=48) as server:
        expected_scores = await scores(server.client, "cats on dogs", documents)
        ranked = (await server.client.post("/rerank", json={"query": "cats on dogs", "documents": documents})).json()
        embedded = await server.client.post("/v1/embeddings", json={"input": "a"})
    for document, score in zip(documents, expected_scores, strict=True):
        pair = tokenizer.text_encoding("cats on dogs", document)
        assert pair.type_ids.count(1) == len(tokenizer.text_encoding(document)) - 1
        with torch.inference_mode():
            logits = theirs(torch.tensor([pair.ids]), token_type_ids=torch.tensor([pair.type_ids])).logits
        assert score == pytest.approx(float(torch.sigmoid(logits)), abs=1e-4)
    assert [item["index"] for item in ranked["results"]] == sorted(range(3), key=lambda i: -expected_scores[i])
    assert embedded.status_code == 400
    assert "scores pairs of texts; it does not embed" in embedded.json()["error"]["message"]
