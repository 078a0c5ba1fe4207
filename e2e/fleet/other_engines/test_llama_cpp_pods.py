"""Pods of an engine that is not the project's: llama.cpp's server, under the same manifest but for ``runtime``."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import openai
import psutil
import pytest

from paternoster_contract.labels import ENGINE_PORT
from paternoster_e2e.artifacts.llama_cpp_image import IMAGE, ensure_llama_cpp_image
from paternoster_e2e.cluster.node import Node
from paternoster_e2e.fleet import Fleet
from paternoster_e2e.kubectl import Document, condition, until
from paternoster_e2e.load import streams
from paternoster_e2e.objects import (
    TARGET_PORT,
    list_addresses,
    list_writers,
    make_deployment,
    model_claim,
    observe,
    read_deployment,
)
from paternoster_operator.engines.answers import sum_samples
from paternoster_operator.engines.openai_server import LLAMA_CPP

pytestmark = pytest.mark.timeout(900)

SLOTS, CAP, CLIENTS, KEY = 4, 2, 6, "rider"
REPLICAS = 4
"""Servers that are killed at once."""
KILLS = int(os.environ.get("PATERNOSTER_KILLS", "20"))
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
def server_node(second_node: Node) -> str:
    """Name of the node that has the server's image, and restarts containers at once."""
    second_node.import_image(ensure_llama_cpp_image())
    return second_node.name


@pytest.fixture
def manifest(fleet: Fleet, server_node: str, model_on_volume: str) -> Document:
    """Manifest of either engine, for clients with :data:`KEY`."""
    fleet.kubectl.apply(model_claim(fleet.namespace))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "clients", "namespace": fleet.namespace}}
    fleet.kubectl.apply({**secret, "stringData": {"key": KEY}})
    document = fleet.document(
        model={"source": model_on_volume},
        concurrency={"initial": CAP, "mode": "Advisory"},
        security={"apiKeySecretRef": {"name": "clients"}},
        drain={"timeoutSeconds": 20},
        nodeSelector={"kubernetes.io/hostname": server_node},
    )
    document["spec"]["engine"] = {"maxNumSeqs": SLOTS, "maxModelLen": 256, "cacheIsolation": "Fleet"}
    return document


def apply(fleet: Fleet, manifest: Document, replicas: int, runtime: Document | None = None) -> None:
    """Returns once every replica is one of ``runtime``."""
    spec = manifest["spec"]
    engine = {**spec["engine"], **({} if runtime is None else {"runtime": runtime})}
    fleet.kubectl.apply({**manifest, "spec": {**spec, "engine": engine, "replicas": replicas}})
    fleet.until_ready(replicas)


def processing(client: httpx.Client, pod: Document) -> float:
    """Requests that run or wait in the server of ``pod``; 0 where it is gone."""
    try:
        answer = client.get(f"http://{pod['status']['podIP']}:{ENGINE_PORT}/metrics")
    except httpx.TransportError:
        return 0
    numbers = sum_samples(answer.content, set(LLAMA_CPP.values()))
    return numbers.get(LLAMA_CPP["running"], 0) + numbers.get(LLAMA_CPP["waiting"], 0)


class Watch:
    """The most requests that a server had at a time, by pod of a fleet, and over all pods and times."""

    def __init__(self, fleet: Fleet) -> None:
        self.most = 0.0
        self.most_of: dict[str, float] = {}
        """Most of each pod, since this was last emptied."""
        self._fleet = fleet
        self._ended = threading.Event()

    def run(self) -> None:
        with httpx.Client(timeout=10) as client:
            while not self._ended.is_set():
                pods = {pod["metadata"]["name"]: pod for pod in self._fleet.pods() if "podIP" in pod["status"]}
                for _ in range(20):
                    for name, pod in pods.items():
                        found = processing(client, pod)
                        self.most_of[name] = max(self.most_of.get(name, 0), found)
                        self.most = max(self.most, found)
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


def servers(fleet: Fleet) -> set[int]:
    """Processes of the fleet's containers, which the node of a test cluster sees."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if f"--alias={fleet.name}" in words and "--metrics" in words:
            found.add(process.pid)
    return found


def kill_servers(fleet: Fleet) -> None:
    """All of them at once; returns when the kubelet has started as many others, and all serve."""
    killed = servers(fleet)
    assert len(killed) == REPLICAS
    for process in killed:
        os.kill(process, signal.SIGKILL)
    until(lambda: len(servers(fleet) - killed) == REPLICAS, "each container is restarted", 60)
    fleet.until_ready(REPLICAS)


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
    apply(fleet, manifest, REPLICAS, SERVER)
    restarts, began = 0, time.monotonic()
    with watching(fleet) as watch, streams(gateway, fleet.name, REPLICAS * CAP + 2, **SHORT, key=KEY):
        for number in range(KILLS // REPLICAS):
            kill_servers(fleet)
            restarts += REPLICAS
            watch.most_of.clear()
            until(lambda: sorted(watch.most_of.values()) == [CAP] * REPLICAS, f"each serves the cap, {number}", 120)
            assert held(fleet) == (CAP, CAP), f"after kill {number}"
    print(f"{restarts} kills and restarts in {time.monotonic() - began:.0f} s")
    assert watch.most == CAP
    counted = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in fleet.pods()]
    assert sum(counted) == restarts


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


def test_a_deployment_of_somebody_else_is_observed_and_replaced(
    fleet: Fleet, server_node: str, model_on_volume: str, manifest: Document
) -> None:
    file = model_on_volume.rpartition("/")[2]
    command = [
        "llama-server", "--host=0.0.0.0", f"--port={TARGET_PORT}", f"--model=/models/{file}", "--alias=chat",
        f"--parallel={SLOTS}", "--ctx-size=1024", "--metrics",
    ]  # fmt: skip
    make_deployment(fleet, IMAGE, command, replicas=2, node=server_node, health="/health")
    observe(fleet, "OpenAI", SLOTS)
    fleet.until_ready(2)
    until(lambda: condition(fleet.get(), "MetricsFresh").get("status") == "True", "both servers report")
    status = fleet.get()["status"]
    assert status["engine"] == {"type": "OpenAI", "version": "", "actuator": "None", "capabilities": []}
    assert (status["replicas"], status["desiredReplicas"], status["endpoint"]) == (2, 2, "")
    assert fleet.chat().status_code == 404, "no gateway has a route to it"
    with ThreadPoolExecutor(6 * SLOTS) as pool:
        body = {"prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True}
        calls = [
            pool.submit(httpx.post, f"{url}/v1/completions", json=body, timeout=600)
            for url in list_addresses(fleet)
            for _ in range(3 * SLOTS)
        ]
        advice = until(lambda: find_advice(fleet), "more replicas are advised", 120)
        assert all(call.result().status_code == 200 for call in calls)
    assert not advice["applied"]
    before = read_deployment(fleet)
    assert (before["metadata"]["generation"], before["spec"]["replicas"]) == (1, 2)
    fleet("scale", "deployment", before["metadata"]["name"], "--replicas=1")
    until(lambda: fleet.get()["status"]["desiredReplicas"] == 1, "the status follows the Deployment")
    for kind in ("deployments", "services", "secrets", "poddisruptionbudgets", "networkpolicies"):
        assert "paternoster" not in list_writers(fleet, kind)
    apply(fleet, manifest, 1, SERVER)
    assert fleet.chat(KEY).status_code == 200, "without targetRef the operator has made a replica of its own"
    assert fleet.get()["status"]["engine"]["actuator"] == "Gateway"
    fleet("delete", "llmd", fleet.name)
    assert read_deployment(fleet)["metadata"]["uid"] == before["metadata"]["uid"]


def find_advice(fleet: Fleet) -> Document:
    """The newest decision that would have added replicas; empty while there is none."""
    decisions = fleet.get()["status"]["decisions"]
    return next((each for each in decisions if each["loop"] == "Replicas" and "replicas 2->" in each["message"]), {})
