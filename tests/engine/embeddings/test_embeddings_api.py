"""``/v1/embeddings`` of the real model: forms of input and output, limits, and what OpenAI's own client makes of it."""

import asyncio
import math
import threading
from array import array
from base64 import b64decode
from typing import Any

import httpx
import openai
import pytest
from openai.types import CreateEmbeddingResponse
from tests.engine.server.leaving import leaves, listening, until
from tests.engine.server.scripted_server import WAIT

from paternoster_engine.model.pooling import Pooling
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.embeddings.requests import MAX_TEXTS, MAX_TOKENS

URL = "/v1/embeddings"


async def vectors(client: httpx.AsyncClient, **body: Any) -> list[list[float]]:
    answer = await client.post(URL, json=body)
    assert answer.status_code == 200, answer.text
    return [item["embedding"] for item in answer.json()["data"]]


def close(first: list[float], second: list[float]) -> bool:
    return max(abs(a - b) for a, b in zip(first, second, strict=True)) < 1e-5


async def test_the_four_forms_of_input(serve):
    async with serve() as server:
        client = server.client
        (one,) = await vectors(client, input="hello")
        many = await vectors(client, input=["a longer text than the others, to be computed with them", "hello", "bye"])
        (ids,) = await vectors(client, input=[101, 7592, 102])
        lists = await vectors(client, input=[[101, 7592, 102], [101, 9061, 102]])
    assert len(one) == 384
    assert math.isclose(math.hypot(*one), 1.0, abs_tol=1e-5)
    assert all(close(one, other) for other in (many[1], ids, lists[0]))
    assert close(many[2], lists[1])
    assert not close(one, many[2])


async def test_base64_is_the_same_numbers(serve):
    async with serve() as server:
        plain_vectors = await vectors(server.client, input=["hello", "bye"])
        coded = await vectors(server.client, input=["hello", "bye"], encoding_format="base64")
    assert [array("f", b64decode(text)).tolist() for text in coded] == plain_vectors


async def test_openais_client(serve):
    """It asks for base64 by itself, and decodes it."""
    async with serve() as server:
        client = openai.AsyncOpenAI(base_url="http://engine/v1", api_key="x", http_client=server.client)
        answer = await client.embeddings.create(model="minilm", input=["hello", "bye"])
        plain = await client.embeddings.create(model="minilm", input=["hello", "bye"], encoding_format="float")
        raw = await server.client.post(URL, json={"input": "hello"})
    CreateEmbeddingResponse.model_validate(raw.json(), strict=True)
    assert set(raw.json()) == {"object", "data", "model", "usage"}
    assert [item.embedding for item in answer.data] == [item.embedding for item in plain.data]
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens, answer.model) == (6, 6, "minilm")
    assert [item.index for item in answer.data] == [0, 1]


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"input": []}, "input", f"a list of 1 to {MAX_TEXTS} of either, not 0"),
        ({"input": ["a"] * (MAX_TEXTS + 1)}, "input", f"1 to {MAX_TEXTS} of either, not {MAX_TEXTS + 1}"),
        ({"input": ["a"] * 10**5}, "input", f"1 to {MAX_TEXTS} of either, not 100000"),
        ({"input": ["word " * 200] * 2000}, "input", f"tokens in all its texts, of at most {MAX_TOKENS} in one call"),
        ({"input": ""}, "input", "not empty"),
        ({"input": ["a", ""]}, "input", "not empty"),
        ({"input": ["a", 5]}, "input", "a text or a list of token ids"),
        ({"input": [[1, "a"]]}, "input", "a text or a list of token ids"),
        ({"input": [101, 30522]}, "input", "token id 30522 must be below 30522"),
        ({"input": "\ud800"}, "input", "lone surrogate"),
        ({"input": "a " * 300}, None, "maximum context length is 256 tokens"),
        ({"input": [5] * 257}, None, "maximum context length is 256 tokens"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "'float' or 'base64'"),
        ({"input": "a", "dimensions": 100}, "dimensions", "not made to be cut: leave it out or send 384 (got 100)"),
        ({"input": "a", "truncate_prompt_tokens": 257}, "truncate_prompt_tokens", "-1 or 3 to 256 (got 257)"),
        ({"input": "a", "truncate_prompt_tokens": 2}, "truncate_prompt_tokens", "-1 or 3 to 256 (got 2)"),
        ({"input": "a", "prompt_name": "query"}, "prompt_name", "prompts are none (got 'query')"),
        ({"input": "a", "priority": 1}, "priority", "not started with priorities"),
        ({"input": "a", "embed_dtype": "float16"}, "embed_dtype", 'send "float32" or null'),
        ({"input": "a", "endianness": "big"}, "endianness", 'send "native" or "little" or null'),
        ({"input": "a", "padding": "max_length"}, "padding", 'send "do_not_pad" or null'),
        ({"input": "a", "truncation_side": "left"}, "truncation_side", 'send "right" or null'),
        ({"input": "a", "normalize": False}, "normalize", "leave it out or send null"),
        ({"input": "a", "add_special_tokens": False}, "add_special_tokens", "send true or null"),
    ],
    ids=lambda value: None if not isinstance(value, str) else value[:20],
)
async def test_what_is_refused(serve, body, field, message):
    async with serve() as server:
        content = None
        if body["input"] == "\ud800":
            content, body = '{"input": "\\ud800"}', None
        headers = {"Content-Type": "application/json"}
        answer = await server.client.post(URL, json=body, content=content, headers=headers)
        assert server.loop.engine.scheduler.counters.computed_tokens == 0
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, field)
    assert message in error["message"]


async def test_a_call_of_more_texts_than_may_wait_is_answered(serve):
    """A part of it waits at a time, whatever limit is set."""
    texts = [f"text {i}" for i in range(20)]
    async with serve(max_num_seqs=8, max_queued_requests=4) as server:
        answer = await server.client.post(URL, json={"input": texts})
    assert (answer.status_code, len(answer.json()["data"])) == (200, 20)
    async with serve(max_num_seqs=8, max_queued_per_tenant=3) as server:
        answer = await server.client.post(URL, json={"input": texts})
    assert (answer.status_code, len(answer.json()["data"])) == (200, 20)


async def test_texts_that_nobody_waits_for_are_not_tokenized(serve, monkeypatch):
    read = []
    gate, encoding = threading.Event(), Tokenizer.text_encoding

    def gated(tokenizer, text, *rest, **more):
        read.append(text)
        assert gate.wait(WAIT)
        return encoding(tokenizer, text, *rest, **more)

    async with serve() as server, listening(server.state) as url, httpx.AsyncClient(base_url=url) as client:
        monkeypatch.setattr(Tokenizer, "text_encoding", gated)
        stays = asyncio.create_task(client.post("/v1/embeddings", json={"input": "stays"}))
        await until(lambda: read)
        lane = server.state.served.prompts.work._short
        alone = lane.held_bytes
        for path, body in (
            ("/v1/embeddings", {"input": ["leaves"]}),
            ("/v2/embed", {"texts": ["leaves"]}),
            ("/v1/rerank", {"query": "leaves", "documents": ["too"]}),
            ("/v1/score", {"text_1": "leaves", "text_2": "too"}),
        ):
            await leaves(url, path, body, lambda: lane.held_bytes > alone)
            await until(lambda: lane.held_bytes == alone)
        gate.set()
        assert (await stays).status_code == 200
        assert len(read) == 1


async def test_longer_texts_are_cut_where_it_is_asked_for(serve):
    async with serve() as server:
        long = "word " * 400
        cut, to_ten = [await vectors(server.client, input=long, truncate_prompt_tokens=n) for n in (-1, 10)]
        same, short = await vectors(server.client, input=["word " * 254, "word " * 8])
        usage = (await server.client.post(URL, json={"input": long, "truncate_prompt_tokens": 10})).json()["usage"]
    assert close(cut[0], same)
    assert close(to_ten[0], short)
    assert usage["prompt_tokens"] == 10


async def test_dimensions_of_a_model_that_was_made_to_be_cut(serve):
    async with serve(pooling=Pooling("mean", 384, shortens=True)) as server:
        (whole,) = await vectors(server.client, input="hello")
        (cut,) = await vectors(server.client, input="hello", dimensions=64)
        over = await server.client.post(URL, json={"input": "hello", "dimensions": 385})
    length = math.hypot(*whole[:64])
    assert close(cut, [number / length for number in whole[:64]])
    assert over.status_code == 400
    assert "1 to 384 (got 385)" in over.json()["error"]["message"]


async def test_dimensions_that_a_model_names(serve):
    async with serve(pooling=Pooling("mean", 384, shortens=True, sizes=(128, 64))) as server:
        (cut,) = await vectors(server.client, input="hello", dimensions=64)
        other = await server.client.post(URL, json={"input": "hello", "dimensions": 65})
    assert len(cut) == 64
    assert "must be one of 128, 64 (got 65)" in other.json()["error"]["message"]


async def test_texts_are_made_lower_case_where_the_model_says_so(serve, minilm):
    """sentence-transformers does so: before the tokenizer, and the prompt with the text."""
    _, tokenizer, _ = minilm()
    read = []

    class Recording:
        def __getattr__(self, name):
            return getattr(tokenizer, name)

        def text_encoding(self, first, *rest, **cut):
            read.append(first)
            return tokenizer.text_encoding(first, *rest, **cut)

    for lower in (True, False):
        pooling = Pooling("mean", 2, prompt="Query: ", prompts={"query": "Query: "}, lower_case=lower)
        async with serve(gated=True, pooling=pooling, tokenizer=Recording()) as server:
            await vectors(server.client, input=["Big CATS", "\u0130\u03a3"])
    assert read == ["query: big cats", "query: i\u0307\u03c2", "Query: Big CATS", "Query: \u0130\u03a3"]


async def test_a_models_prompts_come_before_texts(serve):
    prompts = Pooling("mean", 384, prompts={"query": "query: ", "document": ""}, prompt="query: ")
    async with serve(pooling=prompts) as server:
        client = server.client
        default, named = [await vectors(client, input="cats", **more) for more in ({}, {"prompt_name": "query"})]
        plain = await vectors(client, input=["query: cats", "cats"], prompt_name="document")
        ids = await client.post(URL, json={"input": [5], "prompt_name": "query"})
    assert close(default[0], plain[0])
    assert close(named[0], plain[0])
    assert not close(default[0], plain[1])
    assert "input has token ids" in ids.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ],
)
async def test_it_does_not_generate(serve, path, body):
    async with serve() as server:
        answer = await server.client.post(path, json=body)
        card = (await server.client.get("/v1/models")).json()["data"][0]
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "This model embeds; it does not generate."
    assert (card["id"], card["max_model_len"]) == ("minilm", 256)


async def test_text_to_tokens_and_back(serve):
    async with serve() as server:
        tokens = (await server.client.post("/tokenize", json={"prompt": "Walking, cats!"})).json()["tokens"]
        text = await server.client.post("/detokenize", json={"tokens": tokens[1:-1]})
    assert tokens[0] == 101
    assert text.json()["prompt"] == "walking , cats !"


async def test_what_it_tells_of_itself(serve):
    async with serve() as server:
        await vectors(server.client, input=["hello", "bye"])
        while server.loop.engine.scheduler.has_work:
            await asyncio.sleep(0.01)
        stats = (await server.client.get("/stats")).json()
        metrics = (await server.client.get("/metrics")).text
    totals = ("requests_finished_total", "prompt_tokens_total", "generation_tokens_total")
    assert [stats[name] for name in totals] == [2, 6, 0]
    assert stats["first_token_count_total"] == 2
    assert stats["inter_token_count_total"] == 0
    assert 'paternoster_engine_requests_finished_total{finished_reason="stop",model_name="minilm"} 2.0' in metrics
