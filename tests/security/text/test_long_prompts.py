"""One long prompt must not freeze the engine: it is refused before it is read, or read while others are served."""

import asyncio
import threading
import time
from typing import Any

import pytest

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.errors import TextQueueFull
from paternoster_engine.server.generation import text_work
from paternoster_engine.server.generation.text_work import SHORT, TextWork

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


def _bodies(text: str) -> list[tuple[str, dict[str, Any], str]]:
    return [
        ("/v1/completions", {"prompt": text}, "prompt"),
        ("/v1/completions", {"prompt": ["a", text]}, "prompt"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x", "name": text}]}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": text[:9000]}] * 9}, "messages"),
        ("/tokenize", {"prompt": text}, "prompt"),
        ("/tokenize", {"messages": [{"role": "user", "content": text}]}, "messages"),
    ]


async def test_text_that_cannot_fit_is_never_tokenized(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def encoding(*_: Any) -> None:
        raise AssertionError("text that cannot fit was tokenized")

    async with serve() as server:
        monkeypatch.setattr(Tokenizer, "encode_text", encoding)
        for path, body, param in _bodies("x" * 8_000_000):
            response = await server.client.post(path, json=body)
            error = response.json()["error"]
            assert (response.status_code, error["param"]) == (400, param)
            assert "maximum context length is 128 tokens, which are at most 10368 bytes of text" in error["message"]
            assert len(response.content) < 1000


async def test_the_longest_token_repeated_is_no_longer_than_what_is_taken(serve: Any, tokenizer: Tokenizer) -> None:
    """The bound never refuses what would fit: the longest token of the vocabulary fills the context."""
    longest = max(range(tokenizer.vocab_size), key=lambda token: len(tokenizer.token_bytes(token)))
    text = tokenizer.decode([longest] * 120)
    async with serve() as server:
        response = await server.client.post("/tokenize", json={"prompt": text})
        assert response.json()["count"] <= 120
        assert tokenizer.most_bytes(120) == len(text.encode())


async def test_too_many_tokens_are_refused_and_counted_without_making_a_list(serve: Any) -> None:
    async with serve() as server:
        for path, body, _ in _bodies("a b c d " * 100)[:5:2]:
            response = await server.client.post(path, json=body)
            assert response.status_code == 400
            assert "maximum context length is 128 tokens" in response.json()["error"]["message"]
        assert (await server.client.get("/stats")).json()["requests_rejected_total"] == 3


def test_tokenizing_lets_other_threads_run(tokenizer: Tokenizer) -> None:
    """The method that holds the interpreter's lock stops them for as long as it takes, here over half a second."""
    text = "The quick brown fox jumps over the lazy dog. " * 40_000
    longest, done = 0.0, threading.Event()

    def watch() -> None:
        nonlocal longest
        last = time.monotonic()
        while not done.is_set():
            time.sleep(0.001)
            last, longest = time.monotonic(), max(longest, time.monotonic() - last)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.monotonic()
    tokenizer.encode_text(text)
    took = time.monotonic() - started
    done.set()
    watcher.join()
    assert longest < took / 2


async def test_short_texts_overtake_long_ones() -> None:
    work, order, gate = TextWork(1000 * SHORT), [], threading.Event()
    long = [
        asyncio.create_task(work.run("a", 10 * SHORT, lambda i=i: (gate.wait(30), order.append(i)))) for i in range(4)
    ]
    await asyncio.sleep(0)
    await asyncio.wait_for(work.run("a", 10, lambda: order.append("short")), 30)
    gate.set()
    await asyncio.gather(*long)
    assert order == ["short", 0, 1, 2, 3]
    work.close()


async def test_a_shorter_text_overtakes_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text goes behind those that come within its length's worth of seconds after it, and before all others."""
    now = 0.0
    monkeypatch.setattr(text_work.time, "monotonic", lambda: now)
    work, order, gate = TextWork(1000 * SHORT), [], threading.Event()
    tasks = [asyncio.create_task(work.run("a", SHORT, lambda: gate.wait(30)))]
    for name, size, arrival in (("first", 60_000, 0.0), ("soon", 100, 0.5), ("late", 100, 0.7)):
        await asyncio.sleep(0)
        now = arrival
        tasks.append(asyncio.create_task(work.run("a", size, lambda name=name: order.append(name))))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*tasks)
    assert order == ["soon", "first", "late"]
    work.close()


async def test_what_waits_is_bounded_in_bytes_and_long_texts_leave_room_for_short_ones() -> None:
    work, gate = TextWork(1), threading.Event()
    tasks = [asyncio.create_task(work.run("a", work.most // 2, lambda: gate.wait(30))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TextQueueFull):
        await work.run("a", SHORT + 1, lambda: None)
    assert await work.run("a", SHORT, lambda: "short") == "short"
    gate.set()
    await asyncio.gather(*tasks)
    assert await work.run("a", SHORT + 1, lambda: "again") == "again"
    work.close()


async def test_tenants_take_turns_whatever_the_others_queue() -> None:
    work, order, gate = TextWork(1), [], threading.Event()
    tasks = [asyncio.create_task(work.run("a", 1, lambda: gate.wait(30)))]
    for tenant, count in (("a", 20), ("b", 2)):
        for number in range(count):
            name = f"{tenant}{number}"
            tasks.append(asyncio.create_task(work.run(tenant, 1, lambda name=name: order.append(name))))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*tasks)
    assert order[:5] == ["a0", "b0", "a1", "b1", "a2"]
    work.close()


async def test_a_tenant_that_fills_the_queue_of_texts_leaves_room_for_another() -> None:
    work, gate = TextWork(1), threading.Event()
    tasks = [asyncio.create_task(work.run("a", SHORT, lambda: gate.wait(30)))]
    with pytest.raises(TextQueueFull):
        while True:
            tasks.append(asyncio.create_task(work.run("a", SHORT, lambda: None)))
            await asyncio.sleep(0)
            if tasks[-1].done():
                await tasks.pop()
    other = asyncio.create_task(work.run("b", SHORT // 2, lambda: "b"))
    await asyncio.sleep(0)
    assert not other.done()
    gate.set()
    await asyncio.gather(*tasks)
    assert await other == "b"
    work.close()


async def test_one_who_stops_waiting_leaves_the_turn_to_the_next() -> None:
    work, gate = TextWork(1), threading.Event()
    first, second, third = (asyncio.create_task(work.run("a", 1, lambda: gate.wait(30))) for _ in range(3))
    await asyncio.sleep(0)
    second.cancel()
    gate.set()
    assert await first
    assert await asyncio.wait_for(third, 30)
    assert second.cancelled()
    work.close()


async def test_a_full_queue_of_texts_is_503_and_a_bounded_list_of_prompts_400(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_work, "IN_FLIGHT", 1000)
    async with serve() as server:
        served = server.state.served
        monkeypatch.setattr(served.prompts.work, "most", 1000)
        response = await server.client.post("/v1/completions", json={"prompt": ["a " * 300, "b " * 300]})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt")
        gate = threading.Event()
        held = asyncio.create_task(served.prompts.work.run("", 990, lambda: gate.wait(30)))
        await asyncio.sleep(0)
        response = await server.client.post("/v1/completions", json={"prompt": "a " * 100})
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        gate.set()
        await held
        assert (await server.client.post("/v1/completions", json={"prompt": "a " * 20})).status_code == 200


async def test_numbers_of_prompts_messages_and_parts_are_bounded(serve: Any) -> None:
    message = CHAT["messages"][0]
    async with serve() as server:
        for path, body in (
            ("/v1/completions", {"prompt": ["a"] * 129}),
            ("/v1/chat/completions", {"messages": [message] * 200_000}),
            ("/v1/chat/completions", {"messages": [message | {"content": [{"type": "text", "text": ""}] * 2049}]}),
            ("/tokenize", {"messages": [message] * 2049}),
            ("/detokenize", {"tokens": [1] * 65_537}),
        ):
            response = await server.client.post(path, json=body)
            assert response.status_code == 400
            assert len(response.content) < 1000
