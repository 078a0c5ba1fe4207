"""Documents of ``/v1/rerank`` and ``/v1/score`` that are too long are cut, and the usage counts what was kept."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.engine.embeddings import tiny_encoders as tiny

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine

QUERY, LONG = "what do cats eat", "cats eat fish . " * 200
LENGTH = 48
LIMIT = "max_tokens_per_doc"


@pytest.fixture
def crossing(serve: Any, tmp_path: Path) -> AbstractAsyncContextManager[Any]:
    """A model that reads query and document together."""
    tiny.save(tiny.make("bert", head=True), tmp_path)
    engine, tokenizer, model = build_engine(EngineArgs(model=tmp_path.as_uri(), threads=1, dtype="float32"))
    made: AbstractAsyncContextManager[Any] = serve(
        pooling=model.pooling, tokenizer=tokenizer, runner=engine.runner, max_model_len=LENGTH
    )
    return made


async def _post_scores(server: Any, path: str, **body: Any) -> tuple[list[float], int]:
    """Scores in the order of the documents, and the tokens of the usage."""
    answer = await server.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert "x-paternoster-ignored" not in answer.headers
    answer_body = answer.json()
    if "results" not in answer_body:
        return [item["score"] for item in answer_body["data"]], answer_body["usage"]["prompt_tokens"]
    results = sorted(answer_body["results"], key=lambda item: item["index"])
    assert [item["document"]["text"] for item in results] == body["documents"], "documents come back whole"
    return [item["relevance_score"] for item in results], answer_body["usage"]["prompt_tokens"]


async def test_documents_beside_a_query_are_cut_to_what_it_leaves(crossing: Any) -> None:
    async with crossing as server:
        encode = server.state.served.prompts.tokenizer.text_encoding
        query = len(encode("cats")) - 2
        scores, tokens = await _post_scores(server, "/v1/rerank", query="cats", documents=["cats eat fish", LONG])
        assert tokens == len(encode("cats", "cats eat fish")) + LENGTH
        # Of as many tokens as are left beside the query and the three marks.
        max_tokens = LENGTH - 3 - query
        same, few = await _post_scores(
            server, "/v1/rerank", query="cats", documents=[LONG], max_tokens_per_doc=max_tokens
        )
        assert (same, few) == (pytest.approx(scores[1:], abs=1e-6), LENGTH)
        _, fewer = await _post_scores(server, "/v1/rerank", query="cats", documents=[LONG], max_tokens_per_doc=5)
        assert fewer == 3 + query + 5
        _, least = await _post_scores(
            server, "/v1/rerank", query=LONG, documents=[LONG], max_tokens_per_doc=5, max_tokens_per_query=7
        )
        assert least == 3 + 7 + 5
        _, forced = await _post_scores(server, "/v1/rerank", query=LONG, documents=[LONG], truncate_prompt_tokens=20)
        assert forced == 20
        for body in ({"query": LONG, "documents": ["a"]}, {"query": "cats", "documents": [LONG], "truncate": False}):
            refused = await server.client.post("/v1/rerank", json=body)
            assert refused.status_code == 400
            assert ("query: is too long" in refused.text) == (body["query"] == LONG)


async def test_a_query_keeps_all_its_tokens(crossing: Any) -> None:
    """Also where it is longer than what is left of the document: the longer of the two is not cut first."""
    async with crossing as server:
        encode = server.state.served.prompts.tokenizer.text_encoding
        query = "cats " * 15
        length = len(encode(query)) - 2
        assert length > LENGTH / 2
        cut, tokens = await _post_scores(server, "/v1/rerank", query=query, documents=[LONG])
        left = LENGTH - 3 - length
        same, few = await _post_scores(server, "/v1/score", queries=query, documents=[LONG], max_tokens_per_doc=left)
        assert (tokens, few, same) == (LENGTH, LENGTH, pytest.approx(cut, abs=1e-6))


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/v1/score"])
async def test_documents_of_a_model_that_embeds_are_cut_by_themselves(serve: Any, path: str) -> None:
    names = ("queries", "documents") if "score" in path else ("query", "documents")
    question = {names[0]: QUERY, "truncate": True} if "score" in path else {names[0]: QUERY}
    async with serve() as server:
        most, query = server.state.served.max_model_len, len(server.state.served.prompts.tokenizer.text_encoding(QUERY))
        _, tokens = await _post_scores(server, path, **question, documents=["cats eat fish", LONG])
        assert tokens == query + 5 + most
        _, few = await _post_scores(server, path, **question, documents=[LONG], max_tokens_per_doc=10)
        assert few == query + 2 + 10
        _, whole = await _post_scores(server, path, **question, documents=["cats eat fish"], max_tokens_per_doc=0)
        assert whole == query + 5


async def test_a_score_refuses_what_is_too_long_by_default_as_vllm_does(serve: Any) -> None:
    async with serve() as server:
        refused = await server.client.post("/v1/score", json={"queries": QUERY, "documents": LONG})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
        _, tokens = await _post_scores(server, "/v1/score", queries=QUERY, documents=[LONG], truncation=True)
        assert tokens > server.state.served.max_model_len
