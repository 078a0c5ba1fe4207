"""What a client is answered where the model gave NaN for its request, and what is counted."""

import asyncio
import json
from typing import Any

import pytest
from tests.engine.server.scripted_server import Serve, Server

from paternoster_engine.model.tokenizer import Tokenizer

POISON = " poison"
ROUTES = {
    "/v1/completions": lambda text: {"prompt": text},
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/v1/responses": lambda text: {"input": text},
    "/v1/messages": lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 9},
}


def poison(server: Server, tokenizer: Tokenizer) -> None:
    (server.runner.poison,) = tokenizer.encode(POISON)


async def counted(server: Server) -> list[str]:
    metrics = (await server.admin.get("/metrics")).text.splitlines()
    return [line.split()[-1] for line in metrics if line.split("{")[0].endswith(":corrupted_requests_total")] + [
        line.split()[-1] for line in metrics if line.startswith("paternoster_engine_corrupted_requests_total")
    ]


@pytest.mark.parametrize("route", ROUTES)
async def test_a_whole_answer_is_500_and_others_go_on(serve: Serve, tokenizer: Tokenizer, route: str) -> None:
    async with serve("one two three") as server:
        poison(server, tokenizer)
        assert await counted(server) == ["0.0", "0.0"]
        bad, good = await asyncio.gather(
            *(server.client.post(route, json=ROUTES[route](text)) for text in (f"say{POISON}", "say it"))
        )
        assert (bad.status_code, good.status_code) == (500, 200)
        assert bad.headers["x-should-retry"] == "false"
        assert "NaN or infinite numbers" in bad.json()["error"]["message"]
        assert await counted(server) == ["1.0", "1.0"]


@pytest.mark.parametrize("route", ROUTES)
async def test_a_stream_ends_with_an_error(serve: Serve, tokenizer: Tokenizer, route: str) -> None:
    """After some of its text: the token is of the answer."""
    async with serve(f"one two{POISON} three") as server:
        poison(server, tokenizer)
        answer = await server.client.post(route, json={**ROUTES[route]("say"), "stream": True})
        assert answer.status_code == 200
        events: list[dict[str, Any]] = [
            json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: {")
        ]
        assert "one" in answer.text
        assert "three" not in answer.text
        assert "NaN or infinite numbers" in json.dumps(events[-1])
        assert await counted(server) == ["1.0", "1.0"]
