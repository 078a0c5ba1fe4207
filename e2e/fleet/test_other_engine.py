"""Pods of an engine that is not the project's: llama.cpp's server, under the same manifest but for ``runtime``."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import openai
import pytest

from paternoster_contract.labels import ENGINE_PORT
from paternoster_e2e.artifacts.llama_cpp_image import IMAGE, ensure_llama_cpp_image
from paternoster_e2e.cluster.cluster import Cluster
from paternoster_e2e.fleet import Fleet
from paternoster_e2e.kubectl import Document, until
from paternoster_e2e.load import streams
from paternoster_e2e.objects import model_claim
from paternoster_operator.engines.exposition import sum_samples
from paternoster_operator.engines.openai_server import LLAMA_CPP

pytestmark = pytest.mark.timeout(900)

SLOTS, CAP, CLIENTS, KEY = 4, 2, 6, "rider"
ROUNDS = 5
"""Times that both pods are killed."""
SERVER: Document = {
    "type": "OpenAI",
    "image": IMAGE,
    "command": ["llama-server"],
    "args": [
        "--host=$(PATERNOSTER_HOST)", "--port=$(PATERNOSTER_PORT)", "--model=$(PATERNOSTER_MODEL)",
        "--alias=$(PATERNOSTER_MODEL_NAME)", "--parallel=$(PATERNOSTER_MAX_NUM_SEQS)", "--ctx-size=1024", "--metrics",
    ],
}  # fmt: skip
SHORT = {"prompt_words": 8, "max_tokens": 24}


@pytest.fixture(scope="module")
def llama_cpp(own_cluster: Cluster, gateway: str) -> None:
    """The node has the server's image."""
    assert own_cluster.node is not None
    own_cluster.node.import_image(ensure_llama_cpp_image())


@pytest.fixture
def manifest(fleet: Fleet, llama_cpp: None, model_on_volume: str) -> Document:
    """Of either engine, for clients with :data:`KEY`."""
    fleet.kubectl.apply(model_claim(fleet.namespace))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "clients", "namespace": fleet.namespace}}
    fleet.kubectl.apply({**secret, "stringData": {"key": KEY}})
    document = fleet.document(
        model={"source": model_on_volume},
        concurrency={"initial": CAP, "mode": "Advisory"},
        security={"apiKeySecretRef": {"name": "clients"}},
        drain={"timeoutSeconds": 20},
    )
    document["spec"]["engine"] = {"maxNumSeqs": SLOTS, "maxModelLen": 256, "cacheIsolation": "Fleet"}
    return document


def apply(fleet: Fleet, manifest: Document, replicas: int, runtime: Document | None = None) -> None:
    """Returns once every replica is one of ``runtime``."""
    spec = manifest["spec"]
    engine = {**spec["engine"], **({} if runtime is None else {"runtime": runtime})}
    fleet.kubectl.apply({**manifest, "spec": {**spec, "engine": engine, "replicas": replicas}})
    fleet.until_ready(replicas)


def processing(pod: Document) -> float:
    """Requests that run or wait in the server of ``pod``; 0 where it is gone."""
    try:
        answer = httpx.get(f"http://{pod['status']['podIP']}:{ENGINE_PORT}/metrics", timeout=10)
    except httpx.TransportError:
        return 0
    numbers = sum_samples(answer.content, set(LLAMA_CPP.values()))
    return numbers.get(LLAMA_CPP["running"], 0) + numbers.get(LLAMA_CPP["waiting"], 0)


class Watch:
    """The most requests that a server had at a time, over all pods of a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self.most = 0.0
        self._fleet = fleet
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            pods = [pod for pod in self._fleet.pods() if "podIP" in pod["status"]]
            for _ in range(20):
                self.most = max([self.most, *map(processing, pods)])
                time.sleep(0.02)

    def stop(self) -> None:
        self._ended.set()


@contextmanager
def watching(fleet: Fleet) -> Iterator[Watch]:
    watch = Watch(fleet)
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        yield watch
    finally:
        watch.stop()
        thread.join()


def kill_pods(fleet: Fleet) -> None:
    """All of them at once, without a drain; returns when others serve."""
    fleet("delete", "pods", f"--selector=app.kubernetes.io/instance={fleet.name}", "--force", "--grace-period=0")
    fleet.until_ready(2)


def held(fleet: Fleet) -> tuple[int, int]:
    """The live cap that the status says gateways hold, and the sum of their parts."""
    found = fleet.get()["status"]["gatewayCap"]
    return found["maxInFlight"], sum(found["parts"].values())


def test_pods_of_another_engine(fleet: Fleet, gateway: str, manifest: Document) -> None:
    apply(fleet, manifest, 2, SERVER)
    assert [fleet.chat(key).status_code for key in (KEY, "stranger", "")] == [200, 401, 401]
    client = openai.OpenAI(base_url=f"{gateway}/v1", api_key=KEY, max_retries=0)
    answer = client.chat.completions.create(
        model=fleet.name, messages=[{"role": "user", "content": "Hello"}], max_tokens=4
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4
    status = fleet.get()["status"]
    assert status["engine"] == {"type": "OpenAI", "version": "", "actuator": "Gateway", "capabilities": ["liveCap"]}
    assert status["gatewayCap"]["reason"] == "engines of type OpenAI have no live limits"
    until(lambda: held(fleet) == (CAP, CAP), "the gateway's part is the whole cap")
    with watching(fleet) as watch, streams(gateway, fleet.name, CLIENTS, **SHORT, key=KEY) as load:
        until(lambda: watch.most == CAP, "a server has as many requests as the cap", 120)
        apply(fleet, manifest, 1, SERVER)
        until(lambda: len(fleet.pods()) == 1, "one replica is left")
    assert load.dropped == []
    assert load.completed
    assert watch.most == CAP


def test_the_cap_holds_after_kills(fleet: Fleet, gateway: str, manifest: Document) -> None:
    apply(fleet, manifest, 2, SERVER)
    with watching(fleet) as watch, streams(gateway, fleet.name, CLIENTS, **SHORT, key=KEY) as load:
        for number in range(ROUNDS):
            kill_pods(fleet)
            watch.most, completed = 0, load.completed
            until(lambda completed=completed: load.completed >= completed + CLIENTS, "requests are served", 120)  # type: ignore[misc]
            assert held(fleet) == (CAP, CAP), f"after kill {number}"
            assert watch.most == CAP, f"after kill {number}"


def test_another_engine_for_a_fleet(fleet: Fleet, gateway: str, manifest: Document) -> None:
    apply(fleet, manifest, 1)
    assert "gatewayCap" not in fleet.get()["status"]
    with streams(gateway, fleet.name, 3, **SHORT, key=KEY) as load:
        for runtime, name in ((SERVER, "OpenAI"), (None, "Paternoster")):
            completed = load.completed
            apply(fleet, manifest, 1, runtime)
            until(lambda name=name: fleet.get()["status"]["engine"]["type"] == name, f"the engine is {name}")  # type: ignore[misc]
            until(lambda completed=completed: load.completed >= completed + 6, f"{name} serves", 120)  # type: ignore[misc]
    assert load.dropped == []
    changes = [
        event["message"]
        for event in fleet.kubectl.list("events", fleet.namespace)
        if event["reason"] == "EngineChanged" and event["involvedObject"]["name"] == fleet.name
    ]
    assert len(changes) == 2
