"""Replicas whose engine is not ours: their health and one request, before they count as ready."""

import asyncio
import json
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.operator.reconcile.world import World

from paternoster_contract.access.keys import GATEWAY_TO_ENGINE, derive_key
from paternoster_contract.labels import ENGINE_TYPE, UPSTREAM_MODEL
from paternoster_e2e.fakes.engine import FakeEngine
from paternoster_operator.pods.engine_fault import LONGEST_WORDS, EngineAnswer, judge_health, judge_request
from paternoster_operator.settings import GATEWAY_KEY, Settings

NOT_FOUND = {"error": {"message": "The model `ride` does not exist.", "type": "NotFoundError", "code": 404}}
"""vLLM's and SGLang's."""
PINNED = {"detail": "Server is pinned to '/models/smol'; requested 'ride'."}
"""That of ``transformers serve``."""
OTHER_KEY = {"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}}
"""llama.cpp's."""
NO_TEMPLATE = {"error": {"message": "default chat template is no longer allowed", "code": 400}}


CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def refuse(engine: FakeEngine, status: int, body: object = None) -> None:
    """Have ``engine`` answer all requests so; 200 has it answer them."""
    engine.answers[CHAT] = engine.answers[COMPLETIONS] = status, json.dumps(body or {"choices": []}).encode()


def sent(engine: FakeEngine) -> list[tuple[str, Any, str]]:
    """Path, body and key of each request."""
    keys = [headers.get("Authorization", "") for headers in engine.headers]
    return list(zip(engine.paths, map(json.loads, engine.bodies), keys, strict=True))


def show_pods(world: World, *pods: Any) -> None:
    world.cluster.shown_pods = list(pods)


def engine_pod(world: World, type_: str, *, ready: bool = True, restarts: int = 0) -> Any:
    pod = world.engine.pod("a", ready=ready, annotations={ENGINE_TYPE: type_}, labels={})
    running = {"running": {"startedAt": "2026-11-21T12:00:00Z"}}
    pod["status"]["containerStatuses"] = [
        {"name": "engine", "ready": ready, "restartCount": restarts, "state": running}
    ]
    return pod


@pytest.fixture
async def engine(world: World, document: Callable[..., dict[str, Any]]) -> FakeEngine:
    """The world's, as a server of the OpenAI API."""
    refuse(world.engine, 200)
    world.reconciler = world.new_reconciler(Settings(gateway_url="http://127.0.0.1:9"))
    world.cluster.secrets[GATEWAY_KEY] = {"key": "root"}
    set_type(world, document, "OpenAI")
    return world.engine


def set_type(world: World, document: Callable[..., dict[str, Any]], type_: str) -> None:
    runtime = {"type": type_, "image": "engine:1"}
    world.cluster.resource = document(model={"source": "file:///m"}, engine={"runtime": runtime})
    show_pods(world, engine_pod(world, type_))


@pytest.mark.parametrize("type_", ["OpenAI", "VLLM", "SGLang"])
@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (404, NOT_FOUND, "The model `ride` does not exist."),
        (400, PINNED, "Server is pinned to '/models/smol'; requested 'ride'."),
        (401, OTHER_KEY, "start it without a key of its own"),
        (500, {"error": "no kernel image is available"}, "no kernel image is available"),
    ],
)
async def test_a_replica_that_refuses_every_request_is_not_ready(
    world: World,
    engine: FakeEngine,
    document: Callable[..., dict[str, Any]],
    type_: str,
    status: int,
    body: dict[str, Any],
    words: str,
) -> None:
    set_type(world, document, type_)
    refuse(engine, status, body)
    await world.reconcile()
    for condition in ("Ready", "Stalled"):
        found = world.cluster.condition(condition)
        assert found["reason"] == "EngineRefusesRequests", found
        assert words in found["message"]
        assert f"POST /v1/chat/completions for model 'ride': HTTP {status}" in found["message"]
    assert world.cluster.condition("Ready")["status"] == "False"
    assert world.cluster.statuses[-1]["readyReplicas"] == 0
    assert "EngineRefusesRequests" in [event.reason for event in world.cluster.events]
    refuse(engine, 200)
    await world.reconcile()
    assert world.cluster.condition("Ready")["status"] == "True", "it is asked again"
    assert world.cluster.condition("Stalled") == {}


async def test_the_request_is_a_gateways_and_is_sent_once_for_each_run_of_an_engine(
    world: World, engine: FakeEngine
) -> None:
    for _ in range(3):
        await world.reconcile()
    ((path, body, key),) = sent(engine)
    assert (path, body["model"], body["max_tokens"]) == ("/v1/chat/completions", "ride", 1)
    assert key == f"Bearer {derive_key('root', GATEWAY_TO_ENGINE, 'uid-1')}"
    assert world.cluster.condition("Ready")["status"] == "True"
    show_pods(world, engine_pod(world, "OpenAI", restarts=1))
    await world.reconcile()
    assert len(engine.paths) == 2


async def test_the_request_has_the_name_that_the_engine_has(world: World, engine: FakeEngine) -> None:
    pod = engine_pod(world, "OpenAI")
    pod["metadata"]["annotations"][UPSTREAM_MODEL] = "/models/smol"
    show_pods(world, pod)
    await world.reconcile()
    assert [body["model"] for _, body, _ in sent(engine)] == ["/models/smol"]


async def test_a_model_without_a_chat_template_is_ready(world: World, engine: FakeEngine) -> None:
    refuse(engine, 200)
    engine.answers[CHAT] = 400, json.dumps(NO_TEMPLATE).encode()
    await world.reconcile()
    assert engine.paths == [CHAT, COMPLETIONS]
    assert world.cluster.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_replica_is_ready_and_is_asked_three_times(world: World, engine: FakeEngine, status: int) -> None:
    """An operator that begins may find it so; its health path says whether it serves."""
    refuse(engine, status)
    for _ in range(5):
        await world.reconcile()
        assert world.cluster.condition("Ready")["status"] == "True"
    assert len(engine.paths) == 3


async def test_a_replica_that_does_not_answer_in_time_is_ready(world: World, engine: FakeEngine) -> None:
    async def wait(*_: object) -> web.Response:
        await asyncio.sleep(1)
        return web.Response()

    world.scraper._timeout_seconds, engine.answers[CHAT] = 0.05, wait
    await world.reconcile()
    assert world.cluster.condition("Ready")["status"] == "True"


async def test_without_a_gateway_a_key_is_the_clients_affair(world: World, engine: FakeEngine) -> None:
    world.reconciler = world.new_reconciler(Settings())
    refuse(engine, 401)
    await world.reconcile()
    assert [key for _, _, key in sent(engine)] == [""]
    assert world.cluster.condition("Ready")["status"] == "True"
    refuse(engine, 404)
    world.restart_operator()
    await world.reconcile()
    assert world.cluster.condition("Ready")["reason"] == "EngineRefusesRequests"


async def test_our_own_engine_is_sent_no_request(
    world: World, engine: FakeEngine, document: Callable[..., dict[str, Any]]
) -> None:
    world.cluster.resource = document(model={"source": "file:///m"})
    show_pods(world, world.engine.pod("a"))
    await world.reconcile()
    assert engine.paths == []


@pytest.mark.parametrize(
    ("type_", "path"), [("OpenAI", "/health"), ("VLLM", "/paternoster/health"), ("SGLang", "/health")]
)
async def test_a_server_without_the_health_path_is_named_at_the_second_look(
    world: World, engine: FakeEngine, document: Callable[..., dict[str, Any]], type_: str, path: str
) -> None:
    set_type(world, document, type_)
    engine.answers["/health"] = 404
    show_pods(world, engine_pod(world, type_, ready=False))
    await world.reconcile()
    assert f"GET {path}: HTTP 404" in world.cluster.condition("Ready")["message"]
    assert world.cluster.condition("Stalled") == {}, "a server may set up its routes one after the other"
    await world.reconcile()
    stalled = world.cluster.condition("Stalled")
    assert stalled["reason"] == world.cluster.condition("Ready")["reason"] == "EngineProbeFailed"
    assert f"a: GET {path}: HTTP 404" in stalled["message"]
    assert engine.paths == []


async def test_a_server_that_loads_says_so_itself(world: World, engine: FakeEngine) -> None:
    engine.answers["/health"] = 503, b'{"status": "loading model"}'
    show_pods(world, engine_pod(world, "OpenAI", ready=False))
    for _ in range(3):
        await world.reconcile()
    ready = world.cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "ModelLoading")
    assert 'GET /health: HTTP 503: {"status": "loading model"}' in ready["message"]
    assert world.cluster.condition("Stalled") == {}


async def test_a_replica_that_is_ready_again_serves(world: World, engine: FakeEngine) -> None:
    await world.reconcile()
    engine.answers["/health"] = 404
    show_pods(world, engine_pod(world, "OpenAI", ready=False))
    for _ in range(2):
        await world.reconcile()
    assert world.cluster.condition("Ready")["reason"] == "EngineProbeFailed"
    show_pods(world, engine_pod(world, "OpenAI"))
    await world.reconcile()
    assert world.cluster.condition("Ready")["status"] == "True"
    assert len(engine.paths) == 1


async def test_a_port_that_nothing_listens_on_is_named(world: World, engine: FakeEngine, unused_tcp_port: int) -> None:
    world.engine.url = f"http://127.0.0.1:{unused_tcp_port}"
    show_pods(world, engine_pod(world, "OpenAI", ready=False))
    await world.reconcile()
    ready = world.cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "ModelLoading")
    assert "GET /health: connection refused" in ready["message"]
    assert f"or listens on another port than {unused_tcp_port}" in ready["message"]


async def test_a_server_that_speaks_tls_alone_is_named_at_the_second_look(
    world: World, engine: FakeEngine, tmp_path: Path
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    await asyncio.to_thread(
        subprocess.run,
        [*made, "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=engine"],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    world.engine.url = f"https://127.0.0.1:{port}"
    show_pods(world, engine_pod(world, "OpenAI", ready=False))
    for _ in range(2):
        await world.reconcile()
    stalled = world.cluster.condition("Stalled")
    assert stalled["reason"] == "EngineProbeFailed"
    assert f"port {port} speaks TLS (HTTPS) and not HTTP" in stalled["message"]
    server.close()


ANSWERS = st.builds(EngineAnswer, st.none() | st.integers(100, 999), st.text(), st.booleans(), st.booleans())


@given(answer=ANSWERS, keyed=st.booleans())
def test_what_an_engine_says_is_bounded_and_only_answers_refuse(answer: EngineAnswer, keyed: bool) -> None:
    text = answer.text * 500
    long = EngineAnswer(answer.status, text, answer.refused, answer.speaks_tls)
    assert len(long.words) <= LONGEST_WORDS + len("HTTP 999: ")
    request = judge_request("POST /x", long, keyed=keyed)
    if request is not None:
        assert (answer.status or 0) >= 400
        assert len(request.message) < LONGEST_WORDS + 200
    health = judge_health("/health", long, "http://10.0.0.1:8000")
    if health is not None and health.lasting:
        assert answer.speaks_tls or (answer.status is not None and 400 <= answer.status < 500)
