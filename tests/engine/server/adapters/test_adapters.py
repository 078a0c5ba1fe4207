"""Adapters as models: what clients get by which name, while names and bytes change under them.

``ADAPTER_ROUNDS=1000 pytest tests/engine/server/adapters -k under_load`` changes them a thousand times.
"""

import asyncio
import gc
import os
import random
import re
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from tests.engine.server.adapters.conftest import MAX_TOKENS, PROMPTS, AdaptedServer, AdapterFiles, ServeAdapters

from paternoster_engine.server import adapters

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(600 + 10 * int(os.environ.get("ADAPTER_ROUNDS", "30")))]
ROOM = 2**24
ROUNDS = int(os.environ.get("ADAPTER_ROUNDS", "30"))


async def test_an_adapter_is_a_model_until_it_is_unloaded(files: AdapterFiles, serve_adapters: ServeAdapters) -> None:
    path = files.write(1)
    async with serve_adapters(ROOM) as server:
        assert (await server.complete("sql", PROMPTS[0])).status_code == 404
        loaded = await server.load("sql", path)
        assert (loaded.status_code, loaded.text) == (200, "Success: LoRA adapter 'sql' added successfully.")
        assert loaded.headers["content-type"].startswith("text/plain")
        cards = {card["id"]: card for card in (await server.client.get("/v1/models")).json()["data"]}
        assert list(cards) == ["base", "alias", "sql"]
        assert (cards["sql"]["root"], cards["sql"]["parent"]) == (str(path), "base")
        assert cards["base"]["parent"] is None
        assert (await server.client.get("/v1/models/sql")).json() == cards["sql"]
        for prompt in PROMPTS:
            texts = [await server.text(name, prompt) for name in ("base", "sql", "alias", "sql") if name != "alias"]
            assert texts == [files.answer(seed, prompt) for seed in (None, 1, 1)]
            assert texts[0] != texts[1]
        answers = [(await server.complete(name, PROMPTS[0])).json() for name in ("base", "sql")]
        assert answers[0]["system_fingerprint"] == "fp_base" != answers[1]["system_fingerprint"]
        gone = await server.unload("sql")
        assert (gone.status_code, gone.text) == (200, "Success: LoRA adapter 'sql' removed successfully.")
        assert (await server.complete("sql", PROMPTS[0])).status_code == 404
        assert [card["id"] for card in (await server.client.get("/v1/models")).json()["data"]] == ["base", "alias"]


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_every_api_has_adapters(route: str, files: AdapterFiles, serve_adapters: ServeAdapters) -> None:
    async with serve_adapters(ROOM) as server:
        await server.load("sql", files.write(1))
        messages = [{"role": "user", "content": PROMPTS[0]}]
        body = {"max_tokens": MAX_TOKENS, "temperature": 0, "messages": messages}
        if route == "/v1/responses":
            body = {"max_output_tokens": 16, "temperature": 0, "input": messages}
        answers = [(await server.client.post(route, json={"model": name, **body})).json() for name in ("base", "sql")]
        assert [answer["model"] for answer in answers] == ["base", "sql"]
        texts = [re.findall(r"'(?:content|text)': '([^']*)'", str(answer)) for answer in answers]
        assert texts[0] != texts[1]


async def test_what_is_refused_changes_nothing(
    files: AdapterFiles, serve_adapters: ServeAdapters, tmp_path: Path
) -> None:
    good, size = files.write(1), files.nbytes
    async with serve_adapters(size) as server:
        await server.load("sql", good)
        for name, path, in_place, message in (
            ("sql", good, False, "the LoRA adapter 'sql' has already been loaded"),
            ("sql", tmp_path, True, "has no adapter_config.json"),
            ("sql", files.write(2, rank=16), True, f"takes more than {size} bytes: must be at most max_adapter_memory"),
            ("base", good, True, "'base' is the model's own name"),
            ("alias", good, True, "'alias' is the model's own name"),
            ("", good, False, "must be 1 to 512 printable characters"),
            ("x" * 10_000, good, False, "must be 1 to 512 printable characters"),
            ("a\x00b", good, False, "must be 1 to 512 printable characters"),
            ("other", tmp_path / "absent", False, "has no adapter_config.json"),
            ("other", tmp_path / ("p" * 300), False, "File name too long"),
            ("other", Path("p" * 5000), False, "must be 1 to 4096 printable characters"),
        ):
            refused = await server.load(name, path, in_place=in_place)
            assert refused.status_code == 400, name
            assert message in refused.json()["error"]["message"]
            assert refused.json()["error"]["type"] == "InvalidUserInput"
            assert len(refused.text) < 1000
        for body in ({}, {"lora_name": "a"}, {"lora_path": "/a"}, {"lora_name": 1, "lora_path": "/a"}):
            refused = await server.admin.post("/v1/load_lora_adapter", json=body)
            assert (refused.status_code, refused.json()["error"]["type"]) == (400, "BadRequestError")
        absent = await server.unload("other")
        assert (absent.status_code, absent.json()["error"]["type"]) == (404, "NotFoundError")
        for route in ("load", "unload"):
            assert (await server.client.post(f"/v1/{route}_lora_adapter", json={})).status_code == 404
        assert await server.text("sql", PROMPTS[0]) == files.answer(1, PROMPTS[0])


async def test_an_engine_without_adapters_says_so(files: AdapterFiles, serve_adapters: ServeAdapters) -> None:
    async with serve_adapters(0) as server:
        refused = await server.load("sql", files.write(1))
        assert refused.status_code == 400
        assert "max_adapter_memory is 0" in refused.json()["error"]["message"]
        assert await server.text("base", PROMPTS[0]) == files.answer(None, PROMPTS[0])


async def test_a_request_whose_adapter_is_on_its_way_waits_alone(
    files: AdapterFiles, serve_adapters: ServeAdapters
) -> None:
    async with serve_adapters(files.nbytes) as server:
        await server.load("first", files.write(1))
        await server.load("second", files.write(2))
        assert server.store.counts == {"loads": 2, "evictions": 1}
        server.opened.clear()
        waiting = [asyncio.create_task(server.text("first", prompt)) for prompt in PROMPTS]
        while server.store.counts["waits"] < 2:
            await asyncio.sleep(0.01)
        for name, seed in (("base", None), ("second", 2)):
            assert await server.text(name, PROMPTS[0]) == files.answer(seed, PROMPTS[0])
        metrics = (await server.client.get("/metrics")).text
        assert re.search(r'^vllm:lora_requests_info{.*max_lora="1",.*waiting_lora_adapters="first"', metrics, re.M)
        assert not any(task.done() for task in waiting)
        server.opened.set()
        assert await asyncio.gather(*waiting) == [files.answer(1, prompt) for prompt in PROMPTS]
        assert server.store.counts == {"loads": 3, "evictions": 2, "waits": 2}


async def test_memory_stays_within_its_bound(files: AdapterFiles, serve_adapters: ServeAdapters) -> None:
    """Six adapters in room for two, asked for at once: each answer is its own adapter's."""
    bound = 2 * files.nbytes
    async with serve_adapters(bound) as server:
        for seed in range(6):
            assert (await server.load(f"adapter-{seed}", files.write(seed))).status_code == 200
        calls = [(seed, prompt) for prompt in PROMPTS for seed in (*range(6), *range(6))]
        texts = asyncio.gather(*(server.text(f"adapter-{seed}", prompt) for seed, prompt in calls))
        while not texts.done():
            assert server.store.resident_bytes <= bound
            await asyncio.sleep(0.005)
        assert await texts == [files.answer(seed, prompt) for seed, prompt in calls]
        assert server.store.counts["evictions"] >= 4
        metrics = (await server.client.get("/metrics")).text
        for name in ("adapter_evictions_total", "adapter_loads_total", "adapter_waits_total", "adapter_resident_bytes"):
            found = re.search(rf"^paternoster_engine_{name}{{[^}}]*}} (\S+)", metrics, re.M)
            assert found is not None, name
            assert float(found[1]) > 0, name


async def test_files_that_changed_serve_nobody(files: AdapterFiles, serve_adapters: ServeAdapters) -> None:
    async with serve_adapters(files.nbytes) as server:
        await server.load("first", files.write(1, "changing"))
        await server.load("second", files.write(2))
        path = files.write(3, "changing")
        refused = await server.complete("first", PROMPTS[0])
        assert refused.status_code == 503
        assert "its files have changed since it was loaded" in refused.json()["error"]["message"]
        assert (await server.load("first", path, in_place=True)).status_code == 200
        assert await server.text("first", PROMPTS[0]) == files.answer(3, PROMPTS[0])


async def test_a_stream_goes_on_with_the_adapter_that_it_began_with(
    files: AdapterFiles, serve_adapters: ServeAdapters
) -> None:
    """Replaced, unloaded and evicted meanwhile; its memory is freed when it ends."""
    async with serve_adapters(2 * files.nbytes) as server:
        await server.load("name", files.write(1))
        whole = (await server.complete("name", PROMPTS[0], max_tokens=60)).json()["choices"][0]["text"]
        held = server.store._named["name"]
        running = asyncio.create_task(server.complete("name", PROMPTS[0], max_tokens=60))
        while not server.loop.engine.scheduler.running:
            await asyncio.sleep(0.001)
        assert (await server.load("name", files.write(2), in_place=True)).status_code == 200
        assert (await server.unload("name")).status_code == 200
        assert (await running).json()["choices"][0]["text"] == whole
        await server.loop.call_in_loop(lambda: None)
        gc.collect()
        assert held.digest not in server.store._alive
        assert server.store.resident_bytes == 0


async def test_a_request_gives_up_where_others_take_all_memory(
    files: AdapterFiles, serve_adapters: ServeAdapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "ROOM_SECONDS", 0.0)
    async with serve_adapters(files.nbytes) as server:
        await server.load("first", files.write(1))
        await server.load("second", files.write(2))
        held = await server.store.acquire(server.store.find_adapter("second"))
        refused = await server.complete("first", PROMPTS[0])
        assert refused.status_code == 503
        assert "`first` cannot be used: requests with other adapters took all of" in refused.text
        assert (await server.load("third", files.write(3))).status_code == 400
        del held
        assert await server.text("first", PROMPTS[0]) == files.answer(1, PROMPTS[0])


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError(), RecursionError(), PermissionError(13, "no")]
)
async def test_what_reading_raises_refuses_one_request(
    error: Exception, files: AdapterFiles, serve_adapters: ServeAdapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, most: int) -> NoReturn:
        raise error

    async with serve_adapters(files.nbytes) as server:
        await server.load("first", files.write(1))
        await server.load("second", files.write(2))
        monkeypatch.setattr(server.store, "_open", fail)
        refused = await server.complete("first", PROMPTS[0])
        assert (refused.status_code, (await server.load("third", files.write(3))).status_code) == (503, 400)
        assert await server.text("second", PROMPTS[0]) == files.answer(2, PROMPTS[0])


async def test_a_name_that_changes_between_a_request_and_its_queue(
    files: AdapterFiles, serve_adapters: ServeAdapters
) -> None:
    async with serve_adapters(ROOM) as server:
        await server.load("name", files.write(1, "renewed"))
        found = server.store.find_adapter("name")
        await server.load("name", files.write(2, "renewed"), in_place=True)
        assert (await server.store.acquire(found)).digest == found.digest
        assert (await server.store.acquire(server.store.find_adapter("name"))).digest != found.digest
        assert server.store.counts["waits"] == 0


async def change_names(server: AdaptedServer, files: AdapterFiles, rounds: int) -> tuple[int, int]:
    """Load and unload names with other bytes each time while clients ask; how many answers were right, and refused.

    Raises ``AssertionError`` for an answer that none of the adapters gives which a name stood for during the call.
    """
    draw = random.Random(rounds)
    names, seeds = ("one", "two"), range(4)
    stood: dict[str, list[set[int]]] = {}
    """Seeds that each name may have stood for, in order, two while they change; -1 for none."""
    for name in names:
        stood[name] = [{0}]
        await server.load(name, files.write(0, name))
    ended = asyncio.Event()
    counts = [0, 0]

    async def ask_models(client: int) -> None:
        mine = random.Random(client)
        while not ended.is_set():
            name, prompt = mine.choice(names), mine.choice(PROMPTS)
            first = len(stood[name]) - 1
            response = await server.complete(name, prompt)
            during = set().union(*stood[name][first:])
            if response.status_code == 404:
                assert -1 in during
                counts[1] += 1
                continue
            assert response.status_code == 200, response.text
            text = response.json()["choices"][0]["text"]
            assert text in {files.answer(seed, prompt) for seed in during if seed >= 0}, (name, during)
            counts[0] += 1

    for seed in seeds:
        for prompt in PROMPTS:
            files.answer(seed, prompt)
    assert len({files.answer(seed, prompt) for seed in seeds for prompt in PROMPTS}) == len(seeds) * len(PROMPTS)
    clients = [asyncio.create_task(ask_models(client)) for client in range(4)]
    for _ in range(rounds):
        name, seed = draw.choice(names), draw.choice(seeds)
        in_place = draw.random() < 0.5
        if not in_place:
            stood[name].append(stood[name][-1] | {-1})
            assert (await server.unload(name)).status_code == 200
            stood[name].append({-1})
        stood[name].append(stood[name][-1] | {seed})
        assert (await server.load(name, files.write(seed, name), in_place=in_place)).status_code == 200
        stood[name].append({seed})
        # From here on, nothing but the new bytes.
        prompt = draw.choice(PROMPTS)
        assert await server.text(name, prompt) == files.answer(seed, prompt), "a stale prefix, or another adapter"
        if any(client.done() for client in clients):
            break
    ended.set()
    await asyncio.gather(*clients)
    return counts[0], counts[1]


async def test_names_whose_bytes_change_under_load(files: AdapterFiles, serve_adapters: ServeAdapters) -> None:
    async with serve_adapters(ROOM) as server:
        right, _ = await change_names(server, files, ROUNDS)
        assert right > 0
        assert server.loop.engine.scheduler.counters.prefix_hits > 0, "no prefix was found: none could be stale"
