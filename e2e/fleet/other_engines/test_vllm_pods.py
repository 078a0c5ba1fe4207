"""Pods of a real vLLM, which the node lends to them, under the same manifest but for ``runtime``.

``make vllm`` sets vLLM up. ``PATERNOSTER_KILLS`` is how often one is killed; another takes a minute or more to start.
"""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle, islice

import httpx
import psutil
import pytest

from paternoster_contract.labels import ENGINE_PORT
from paternoster_e2e.artifacts.vllm_image import IMAGE, ensure_vllm_image
from paternoster_e2e.cluster.cluster import Cluster
from paternoster_e2e.fleet import Fleet
from paternoster_e2e.kubectl import Document, condition, until
from paternoster_e2e.load import streams
from paternoster_e2e.objects import (
    TARGET_PORT,
    list_addresses,
    list_writers,
    make_deployment,
    model_claim,
    model_volume,
    observe,
)
from paternoster_e2e.reach import ReachPod
from paternoster_operator.engines.answers import sum_samples
from peers.systems.vllm_cpu import ENVIRONMENT
from peers.systems.weights import checkpoint

SLOTS, CAP, CLIENTS, KEY = 4, 2, 3, "rider"
REPLICAS = 2
"""Where some are killed."""
KILLS = int(os.environ.get("PATERNOSTER_KILLS", "3"))
STARTS_WITHIN = 900
RUNNING = "vllm:num_requests_running"
PREEMPTIONS = "vllm:num_preemptions_total"
OBSERVED_SLOTS, OBSERVED_KV = 12, 32 * 2**20
"""Sequences, and bytes for half as many long answers, of a vLLM that the operator did not start."""
VLLM: Document = {
    "type": "VLLM",
    "image": IMAGE,
    "args": ["--enforce-eager"],
    "env": [{"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "nobind"}, {"name": "OMP_NUM_THREADS", "value": "1"}],
}
SHORT = {"prompt_words": 8, "max_tokens": 24}

pytestmark = pytest.mark.timeout(3600 + 300 * KILLS)


@pytest.fixture(scope="module")
def vllm_node(own_cluster: Cluster, gateway: str) -> Iterator[str]:
    """Name of a node that has vLLM's environment and image beside the project's, and restarts containers at once."""
    if not ENVIRONMENT.python.is_file():
        pytest.skip(f"there is no vLLM in {ENVIRONMENT.folder}: run 'make vllm'")
    vllm = ensure_vllm_image(ENVIRONMENT.folder / "bin" / "vllm")
    lent = {str(ENVIRONMENT.folder): ENVIRONMENT.folder}
    with own_cluster.second_node([*own_cluster.images, vllm], lent) as node:
        yield node.name


@pytest.fixture
def manifest(fleet: Fleet, vllm_node: str) -> Iterator[Document]:
    """Manifest of either engine, for clients with :data:`KEY`; the model is a folder on a volume."""
    model = checkpoint()
    for file in model.iterdir():
        file.chmod(0o644)  # safetensors writes for its user alone; pods run as another
    fleet.kubectl.apply(model_volume(fleet.namespace, model.parent))
    fleet.kubectl.apply(model_claim(fleet.namespace))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "clients", "namespace": fleet.namespace}}
    fleet.kubectl.apply({**secret, "stringData": {"key": KEY}})
    document = fleet.document(
        model={"source": f"pvc://models/{model.name}"},
        concurrency={"initial": CAP, "mode": "Advisory"},
        security={"apiKeySecretRef": {"name": "clients"}},
        drain={"timeoutSeconds": 60},
        nodeSelector={"kubernetes.io/hostname": vllm_node},
    )
    document["spec"]["engine"] = {
        "maxNumSeqs": SLOTS, "maxModelLen": 256, "kvCacheMemory": "64Mi", "dtype": "bfloat16",
        "cacheIsolation": "Fleet",
    }  # fmt: skip
    yield document
    fleet.kubectl("delete", "persistentvolume", fleet.namespace, "--wait=false")


def apply(fleet: Fleet, manifest: Document, runtime: Document | None, *, replicas: int = 1, initial: int = CAP) -> None:
    """Returns once all replicas are of ``runtime``, and serve."""
    spec = manifest["spec"]
    engine = {**spec["engine"], **({} if runtime is None else {"runtime": runtime})}
    concurrency = {**spec["concurrency"], "initial": initial}
    changed = {**spec, "engine": engine, "replicas": replicas, "concurrency": concurrency}
    fleet.kubectl.apply({**manifest, "spec": changed})
    fleet.until_ready(replicas, STARTS_WITHIN)


def caps(fleet: Fleet) -> tuple[int, int, int]:
    """The live cap that the operator sets, and the least and the most that engines report."""
    found = fleet.get()["status"]["concurrency"]
    return found["target"], found.get("currentMin", 0), found.get("currentMax", 0)


def read_running(fleet: Fleet) -> float:
    """Requests that the only pod's vLLM runs."""
    (pod,) = fleet.pods()
    answer = httpx.get(f"http://{pod['status']['podIP']}:{ENGINE_PORT}/metrics", timeout=10)
    return sum_samples(answer.content, {RUNNING})[RUNNING]


def read_limits(fleet: Fleet) -> list[Document]:
    """What the plugin of each vLLM that answers reports."""
    header = fleet.read_key_header("admin")
    found = []
    for pod in fleet.pods():
        with suppress(KeyError, httpx.TransportError):  # it has no address yet, or does not listen
            url = f"http://{pod['status']['podIP']}:{ENGINE_PORT}/paternoster/limits"
            answer = httpx.get(url, headers=header, timeout=10)
            found += [answer.json()] if answer.status_code == 200 else []
    return found


def find_instances(fleet: Fleet) -> set[str]:
    """A name of each vLLM that answers, which another process of it does not have."""
    return {each["instance"] for each in read_limits(fleet)}


def find_server(fleet: Fleet) -> psutil.Process:
    """The API server of one of the fleet's vLLMs, which the node of a test cluster sees; the one that is oldest."""
    processes = sorted(psutil.process_iter(["cmdline", "create_time"]), key=lambda each: each.info["create_time"])
    wanted = {"serve", "--enforce-eager", fleet.name}
    return next(each for each in processes if wanted <= set(each.info["cmdline"] or []))


def kill_server(fleet: Fleet) -> None:
    """The first process of its container: all of them end."""
    find_server(fleet).kill()


def kill_core(fleet: Fleet) -> None:
    """The process that computes; the API server ends itself then."""
    children = find_server(fleet).children(recursive=True)
    next(each for each in children if "EngineCore" in " ".join([each.name(), *each.cmdline()])).kill()


def delete_pod(fleet: Fleet) -> None:
    """Without a drain; another pod takes its place."""
    name = fleet.pods()[0]["metadata"]["name"]
    fleet("delete", "pod", name, "--force", "--grace-period=0")


def kill_one(fleet: Fleet, kill: Callable[[Fleet], None], moment: str) -> None:
    """Returns once another vLLM is in the place of the killed one."""
    before = find_instances(fleet)
    kill(fleet)
    until(lambda: len(find_instances(fleet) - before) == 1, f"another vLLM answers {moment}", STARTS_WITHIN)
    fleet.until_ready(REPLICAS, STARTS_WITHIN)


def hold_same_cap(fleet: Fleet) -> bool:
    """Whether each vLLM itself reports the live cap that the status says."""
    return [each["live_cap"] for each in read_limits(fleet)] == [CAP] * REPLICAS and caps(fleet) == (CAP, CAP, CAP)


def test_another_engine_and_back_under_streams(fleet: Fleet, gateway: str, manifest: Document) -> None:
    apply(fleet, manifest, None)
    with streams(gateway, fleet.name, CLIENTS, **SHORT, key=KEY) as load:
        until(lambda: load.completed >= CLIENTS, "our engine serves", 120)
        apply(fleet, manifest, VLLM)
        until(lambda: fleet.get()["status"]["engine"]["type"] == "VLLM", "the engine is vLLM")
        completed = load.completed
        until(lambda: load.completed >= completed + 2 * CLIENTS, "vLLM serves", 240)
        status = fleet.get()["status"]
        print(f"the status of a fleet of vLLM: {status['engine']}")
        assert status["engine"]["actuator"] == "Plugin"
        for cap in (CAP, 1):
            apply(fleet, manifest, VLLM, initial=cap)
            until(lambda cap=cap: caps(fleet) == (cap, cap, cap), f"vLLM has a cap of {cap}", 120)  # type: ignore[misc]
            until(lambda cap=cap: read_running(fleet) <= cap, "what ran beyond it has ended", 120)  # type: ignore[misc]
            seen = [read_running(fleet) for _ in range(100)]
            assert max(seen) == cap
        check_who_may_call(fleet, gateway)
        apply(fleet, manifest, None)
        until(lambda: fleet.get()["status"]["engine"]["type"] == "Paternoster", "the engine is ours")
        completed = load.completed
        until(lambda: load.completed >= completed + 2 * CLIENTS, "our engine serves again", 120)
    assert load.dropped == []


def check_who_may_call(fleet: Fleet, gateway: str) -> None:
    """A key opens a fleet of vLLM at the gateway, and no other pod reaches its port."""
    assert [fleet.chat(key).status_code for key in (KEY, "stranger", "")] == [200, 401, 401]
    (pod,) = fleet.pods()
    address = pod["status"]["podIP"]
    # From the node, as a kubelet: no policy keeps it out.
    assert httpx.post(f"http://{address}:{ENGINE_PORT}/v1/completions", json={}, timeout=10).status_code == 401
    stranger = ReachPod(fleet.kubectl, fleet.namespace, "stranger")
    stranger.apply()
    stranger.ready()
    assert stranger.reaches(httpx.URL(gateway).host, httpx.URL(gateway).port or 80)
    assert not stranger.reaches(address, ENGINE_PORT)


def test_kills_and_a_scale_down_under_streams(fleet: Fleet, gateway: str, manifest: Document) -> None:
    apply(fleet, manifest, VLLM, replicas=REPLICAS)
    kinds: tuple[Callable[[Fleet], None], ...] = (kill_server, kill_core, delete_pod)
    with streams(gateway, fleet.name, REPLICAS * CAP, **SHORT, key=KEY) as load:
        until(lambda: hold_same_cap(fleet), "each vLLM has the cap", 120)
        began = time.monotonic()
        for number, kill in enumerate(islice(cycle(kinds), KILLS)):
            moment = f"after kill {number}, {kill.__name__}"
            kill_one(fleet, kill, moment)
            until(lambda: hold_same_cap(fleet), f"each vLLM has the cap {moment}", 120)
            assert load.dropped == [], moment
        print(f"{KILLS} kills and restarts in {time.monotonic() - began:.0f} s, {load.completed} streams were whole")
        apply(fleet, manifest, VLLM, replicas=1)
        until(lambda: len(fleet.all_pods()) == 1, "the other pod is gone", 180)
    assert load.dropped == []


def test_a_vllm_of_somebody_else_is_observed(fleet: Fleet, vllm_node: str, manifest: Document) -> None:
    folder = manifest["spec"]["model"]["source"].rpartition("/")[2]
    command = [
        "vllm", "serve", f"/models/{folder}", "--host=0.0.0.0", f"--port={TARGET_PORT}", "--served-model-name=chat",
        "--dtype=bfloat16", f"--max-num-seqs={OBSERVED_SLOTS}", "--max-model-len=512", "--enforce-eager",
        f"--kv-cache-memory-bytes={OBSERVED_KV}",
    ]  # fmt: skip
    make_deployment(fleet, IMAGE, command, replicas=1, node=vllm_node, health="/health")
    observe(fleet, "VLLM", OBSERVED_SLOTS)
    fleet.until_ready(1, STARTS_WITHIN)
    until(lambda: condition(fleet.get(), "MetricsFresh").get("status") == "True", "vLLM is read")
    status = fleet.get()["status"]
    print(f"the status of an observed vLLM: {status['engine']}")
    assert status["engine"]["version"].startswith("0.32")
    (url,) = list_addresses(fleet)
    assert httpx.get(f"{url}/paternoster/limits", timeout=10).status_code == 404, "it has no plugin"
    with ThreadPoolExecutor(OBSERVED_SLOTS) as pool:
        body = {"model": "chat", "prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": True}
        calls = [
            pool.submit(httpx.post, f"{url}/v1/completions", json=body, timeout=900) for _ in range(3 * OBSERVED_SLOTS)
        ]
        cut = until(lambda: find_lower_cap(fleet), "a lower cap is advised for preemptions", 600)
        assert all(call.result().status_code == 200 for call in calls)
    print(f"advised of an observed vLLM: {cut['message']}")
    assert not cut["applied"]
    assert "requests preempted with" in cut["message"]
    answer = httpx.get(f"{url}/metrics", timeout=10)
    assert sum_samples(answer.content, {PREEMPTIONS})[PREEMPTIONS] > 0
    assert "paternoster" not in list_writers(fleet, "deployments") | list_writers(fleet, "services")


def find_lower_cap(fleet: Fleet) -> Document:
    """The newest decision that would have lowered the live cap; empty while there is none."""
    decisions = fleet.get()["status"]["decisions"]
    return next(
        (each for each in decisions if each["loop"] == "LiveCap" and each["message"].startswith("live cap")), {}
    )
