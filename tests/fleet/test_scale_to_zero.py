"""A fleet that scales to zero without requests: real engine, real gateway, real client."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from tests.fleet.fleet import Up, wait_for

pytestmark = pytest.mark.slow

ENGINE = {"maxNumSeqs": 4, "maxModelLen": 512, "kvCacheMemory": "64Mi"}
QUESTION = [{"role": "user", "content": "What is the capital of Japan?"}]


def to_zero(**fields: Any) -> dict[str, Any]:
    return {
        "engine": ENGINE,
        "drain": {"timeoutSeconds": 5},
        "autoscaling": {"minReplicas": 0, "maxReplicas": 1, "scaleToZero": {"enabled": True, **fields}},
    }


def send_chat(endpoint: str, retries: int = 0) -> str:
    client = openai.OpenAI(base_url=endpoint + "/v1", api_key="none", max_retries=retries)
    answer = client.chat.completions.create(model="smollm2", messages=QUESTION, temperature=0)  # type: ignore[arg-type]
    return answer.choices[0].message.content or ""


def test_a_held_request_wakes_a_sleeping_fleet_that_falls_asleep_again(up: Callable[..., Up]) -> None:
    fleet = up(**to_zero(idleSeconds=2))
    endpoint = fleet.ready(0)
    assert fleet.engine_pids() == []
    assert "Tokyo" in send_chat(endpoint), "held until the first engine serves"
    wait_for(lambda: not fleet.engine_pids() and fleet.last()["desired"] == 0, "falling asleep")
    explained = json.loads(fleet.explain("--json"))
    made = [d["reason"] for d in reversed(explained["decisions"]) if d["loop"] == "Replicas" and d["applied"]]
    assert made == ["ActivatedByRequest", "ScaleToZeroIdle"]
    assert explained["startup"]["observedStarts"] == 1
    assert fleet.interrupt() == 0


def test_a_refused_request_wakes_it_as_well(up: Callable[..., Up]) -> None:
    fleet = up(**to_zero(coldRequestPolicy="Reject"))
    endpoint = fleet.ready(0)
    body = {"model": "smollm2", "messages": QUESTION}
    refused = httpx.post(f"{endpoint}/v1/chat/completions", json=body)
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) > 0
    fleet.ready(1)
    # The gateway learns of a replica a moment after its status says so; a client comes again after Retry-After.
    assert "Tokyo" in send_chat(endpoint, retries=5)
    assert fleet.interrupt() == 0
