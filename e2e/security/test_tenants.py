"""Two tenants on one fleet: each has its limits and its part of the cache, whatever a body says, until its key ends."""

import json
import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import httpx
import pytest

from paternoster_contract.access.identity import HEADER, Identity
from paternoster_e2e.kubectl import until
from paternoster_e2e.teams import Teams

pytestmark = pytest.mark.timeout(600)

PROMPT = "The lift never stops. " * 30


def entry(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "sha256": sha256(f"key-of-{name}".encode()).hexdigest(), **fields}


def test_a_key_says_who_its_client_is(teams: Teams) -> None:
    fleet = teams.fleet(teams.a)

    def write(*entries: dict[str, Any]) -> None:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tenants", "namespace": teams.a}}
        teams.kubectl.apply({**secret, "stringData": {"key": json.dumps(entries)}})

    def complete(name: str, headers: dict[str, str] | None = None, **fields: object) -> httpx.Response:
        body = {"model": fleet.name, "prompt": PROMPT, "max_tokens": 4, **fields}
        key = {"Authorization": f"Bearer key-of-{name}"}
        return httpx.post(f"{teams.gateway}/v1/completions", json=body, headers={**(headers or {}), **key}, timeout=150)

    def cached() -> int:
        total: int = json.loads(fleet.engine_answer("/stats"))["cached_prompt_tokens_total"]
        return total

    write(entry("acme"), entry("slow", tokensPerSecond=1, tokenBurst=10))
    fleet.apply(security={"apiKeys": [{"name": "tenants"}]}, engine={"order": "priority"})
    fleet.until_ready()
    assert [complete(name).status_code for name in ("acme", "nobody")] == [200, 401]

    before = cached()
    assert complete("slow").status_code == 200
    assert cached() == before, "what acme asked is not there for another tenant"
    assert complete("acme").status_code == 200
    assert cached() > before, "for acme it is"

    forged = {HEADER: Identity(tenant="acme", min_priority=-1000).encode()}
    assert [complete("slow", forged, user=f"name-{i}").status_code for i in range(5)] == [429] * 5
    refused = complete("acme", forged, priority=-1)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "priority")
    assert httpx.get(f"{teams.gateway}/stats", timeout=30).status_code == 404
    assert httpx.get(f"{teams.gateway}/v1/models", timeout=30).json()["data"] == []

    ends = (datetime.now(UTC) + timedelta(seconds=75)).isoformat()
    write(entry("acme", expires=ends), entry("late"), {"name": "bad", "sha256": "none"})
    until(lambda: complete("late").status_code == 200, "the new key opens", 120)
    assert "entry 3" in fleet.until_stalled("ConfigurationInvalid", ready="True")
    until(lambda: complete("acme").status_code == 401, "the old key has ended", 120)
    assert time.time() >= datetime.fromisoformat(ends).timestamp() - 5
    assert complete("late").status_code == 200
