"""``allowed_token_ids`` and ``bad_words`` of a call, with the default model."""

from typing import Any

import pytest
from tests.engine.server.scripted_server import Serve

from paternoster_engine.model.tokenizer import Tokenizer


@pytest.mark.parametrize("field", ["allowed_token_ids", "bad_words"])
async def test_not_with_beams(serve: Serve, field: str) -> None:
    async with serve() as server:
        body: dict[str, Any] = {"prompt": "x", "n": 2, "use_beam_search": True, "temperature": 0}
        body[field] = [5] if field == "allowed_token_ids" else ["x"]
        answer = await server.client.post("/v1/completions", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


async def test_a_token_beyond_the_vocabulary_is_refused(serve: Serve, tokenizer: Tokenizer) -> None:
    async with serve() as server:
        body = {"prompt": "x", "allowed_token_ids": [5, tokenizer.vocab_size]}
        answer = await server.client.post("/v1/completions", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "allowed_token_ids")


async def test_they_reach_the_sampler(serve: Serve, tokenizer: Tokenizer) -> None:
    async with serve("one") as server:
        seen = []
        sample = server.runner._sample

        def spy(item: Any) -> int | None:
            seen.append(item.request.params)
            return sample(item)

        server.runner._sample = spy  # type: ignore[method-assign]
        body = {"messages": [{"role": "user", "content": "x"}], "allowed_token_ids": [5, 9], "bad_words": ["Paris"]}
        assert (await server.client.post("/v1/chat/completions", json=body)).status_code == 200
        assert seen[0].allowed_tokens[:2] == bytes([1 << 5, 1 << 1])
        assert set(seen[0].bad_words) >= {tuple(tokenizer.encode("Paris"))}
        assert tuple(tokenizer.encode(" Paris")) in seen[0].bad_words
