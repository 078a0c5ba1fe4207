"""A model that answers under several names, as with vLLM's ``--served-model-name a b c``."""

from typing import Any

import pytest
from openai import AsyncOpenAI

NAMES = ("scripted", "mistral:latest", "org/scripted")


@pytest.mark.parametrize("name", NAMES)
async def test_each_name_is_answered_and_the_first_is_in_answers_and_metrics(serve: Any, name: str) -> None:
    async with serve(served={"aliases": NAMES[1:]}) as server:
        openai = AsyncOpenAI(base_url="http://engine/v1", api_key="k", http_client=server.client)
        assert {card.id: card.root for card in (await openai.models.list()).data} == dict.fromkeys(NAMES, "scripted")
        assert (await openai.models.retrieve(name)).id == name
        done = await openai.completions.create(model=name, prompt="Hi", max_tokens=2)
        assert done.model == "scripted"
        response = await server.client.post("/tokenize", json={"model": name, "prompt": "Hi"})
        assert response.status_code == 200
        series = (await server.client.get("/metrics")).text
        assert 'model_name="scripted"' in series
        assert not any(f'"{alias}"' in series for alias in NAMES[1:])


async def test_other_names_are_unknown(serve: Any) -> None:
    async with serve(served={"aliases": NAMES[1:]}) as server:
        for name in ("mistral", "mistral:", "latest", "scripted:latest"):
            response = await server.client.post("/v1/completions", json={"prompt": "Hi", "model": name})
            assert response.status_code == (await server.client.get(f"/v1/models/{name}")).status_code == 404
