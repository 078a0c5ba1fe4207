"""``paternoster up`` with llama.cpp's server, which ``make llama-cpp`` builds: gateways hold its live cap."""

import json
import os
import threading
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from tests.fleet.fleet import Up, wait_for

from paternoster_operator.engines.answers import sum_samples
from paternoster_operator.engines.openai_server import LLAMA_CPP
from peers.systems import llama_cpp_build
from peers.systems.weights import model_file

pytestmark = pytest.mark.other_engine
CAP, SLOTS, REQUESTS, TOKENS = 2, 4, 6, 32


@pytest.fixture(scope="module")
def program() -> str:
    if os.environ.get("REQUIRE_COMPONENTS"):
        llama_cpp_build.build()
    elif not llama_cpp_build.server_binary().is_file():
        pytest.skip(f"there is no {llama_cpp_build.server_binary()}: run 'make llama-cpp'")
    return str(llama_cpp_build.server_binary())


def read(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics") as response:
        return sum_samples(response.read(), {*LLAMA_CPP.values()})


def test_a_server_without_live_limits_runs_no_more_than_its_cap(program: str, up: Callable[..., Up]) -> None:
    args = [
        "--host", "$(PATERNOSTER_HOST)", "--port", "$(PATERNOSTER_PORT)", "--model", "$(PATERNOSTER_MODEL)",
        "--alias", "$(PATERNOSTER_MODEL_NAME)", "--parallel", "$(PATERNOSTER_MAX_NUM_SEQS)", "--ctx-size", "2048",
        "--threads", "1", "--metrics", "--offline",
    ]  # fmt: skip
    runtime = {"type": "OpenAI", "command": [program], "args": args}
    fleet = up(
        model={"source": f"file://{model_file()}"},
        engine={"runtime": runtime, "maxNumSeqs": SLOTS},
        concurrency={"initial": CAP},
    )
    endpoint = fleet.ready(1)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(fleet.get("smollm2", "-o", "json"))["status"]
        return found

    held = wait_for(lambda: status().get("gatewayCap"), "the bound in the status")
    assert held["maxInFlight"] == CAP
    wait_for(lambda: sum(status()["gatewayCap"]["parts"].values()) == CAP, "the gateway's part")
    assert status()["engine"]["actuator"] == "Gateway"
    (url,) = fleet.replicas().values()

    seen: list[dict[str, float]] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            seen.append(read(url))

    client = openai.OpenAI(base_url=f"{endpoint}/v1", api_key="none", max_retries=0)

    def complete(number: int) -> int:
        answer = client.completions.create(
            model="smollm2", prompt=f"{number} lifts", max_tokens=TOKENS, extra_body={"ignore_eos": True}
        )
        assert answer.usage is not None
        return answer.usage.completion_tokens

    with ThreadPoolExecutor(REQUESTS + 1) as threads:
        watching = threads.submit(watch)
        assert list(threads.map(complete, range(REQUESTS))) == [TOKENS] * REQUESTS
        ended.set()
        watching.result()
    assert max(numbers[LLAMA_CPP["running"]] for numbers in seen) == CAP
    assert max(numbers[LLAMA_CPP["waiting"]] for numbers in seen) == 0
    assert read(url)[LLAMA_CPP["generated"]] == REQUESTS * TOKENS
    assert f"{CAP} requests at a time at each engine, held by gateways" in fleet.explain()
    assert fleet.interrupt() == 0
