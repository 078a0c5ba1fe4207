"""A reader of a served engine's text chains has what the engine then delivers from its cache."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from paternoster_contract.http import paths
from paternoster_contract.http.headers import CACHED_TOKENS, PROMPT_TOKENS
from paternoster_contract.text_chains.canonical_text import canonical_text
from paternoster_contract.text_chains.chain import chain_scope, text_chain
from paternoster_contract.text_chains.stream import Changes, FrameReader, Heartbeat, Hello, Snapshot

CHAT = "/v1/chat/completions"
WAIT = 30.0
BLOCK = 16
SYSTEM = "The paternoster lift has no doors and never stops; riders step on and off at every floor. " * 4
FLAGS = ("--block-size", str(BLOCK), "--kv-cache-memory", "24000000")


class Reader:
    """One connection and the index that it fills."""

    def __init__(self, index: dict[int, int]) -> None:
        self.index = index
        self.hello: Hello | None = None
        self.sequence = -1
        self.whole = threading.Event()
        self.stop = False

    def read(self, url: str, params: dict[str, Any]) -> None:
        frames = FrameReader()
        with httpx.stream("GET", url + paths.TEXT_CHAINS, params=params, timeout=WAIT) as answer:
            assert answer.status_code == 200, answer.read()
            for data in answer.iter_raw():
                for frame in frames.feed(data):
                    self.apply(frame)
                if self.stop:
                    return

    def apply(self, frame: object) -> None:
        match frame:
            case Hello():
                self.hello = frame
                if not frame.resumes:
                    self.index.clear()
            case Snapshot():
                self.index.update(frame.stored)
                self.sequence = frame.sequence
            case Changes():
                assert self.sequence in (-1, frame.sequence - 1)
                self.sequence = frame.sequence
                if frame.cleared:
                    self.index.clear()
                for digest in frame.removed:
                    self.index.pop(digest, None)
                self.index.update(frame.stored)
            case Heartbeat():
                self.whole.set()


@contextmanager
def reading(url: str, index: dict[int, int], **params: Any) -> Iterator[Reader]:
    reader = Reader(index)
    thread = threading.Thread(target=reader.read, args=(url, params))
    thread.start()
    try:
        settle(reader)
        yield reader
    finally:
        reader.stop = True
        thread.join()


def settle(reader: Reader) -> None:
    """Until a pause of the changes, which a heartbeat ends."""
    time.sleep(0.2)
    reader.whole.clear()
    assert reader.whole.wait(WAIT)


def promised(reader: Reader, path: str, body: dict[str, Any]) -> int:
    assert reader.hello is not None
    text = canonical_text(path, body)
    assert text is not None
    pieces = text_chain(chain_scope(reader.hello.model), text)
    return next((reader.index[piece.digest] for piece in reversed(pieces) if piece.digest in reader.index), 0)


def post_body(url: str, path: str, body: dict[str, Any]) -> tuple[int, int, Any]:
    answer = httpx.post(url + path, json=body, timeout=WAIT)
    assert answer.status_code == 200, answer.text
    return int(answer.headers[CACHED_TOKENS]), int(answer.headers[PROMPT_TOKENS]), answer.json()


def question(number: int, system: str = SYSTEM, **fields: Any) -> dict[str, Any]:
    words = " ".join(f"word{number * 1000 + place}" for place in range(30))
    messages = [{"role": "system", "content": system}, {"role": "user", "content": f"{number}: repeat {words}"}]
    return {"messages": messages, "temperature": 0, "max_tokens": 24, "min_tokens": 24, **fields}


def reset_prefix_cache(engine: Any) -> None:
    assert httpx.post(f"{engine.admin_url}{paths.ADMIN_RESET_PREFIX_CACHE}").status_code == 200


@pytest.fixture(scope="module")
def shared_engine(run_engine: Any) -> Iterator[Any]:
    with run_engine(*FLAGS) as engine:
        yield engine


@pytest.fixture
def engine(shared_engine: Any) -> Any:
    """One that holds no text."""
    reset_prefix_cache(shared_engine)
    return shared_engine


def test_nothing_is_recorded_for_no_reader(engine: Any) -> None:
    """First in this file, as the engine has had no reader yet."""
    index: dict[int, int] = {}
    body = question(1)
    post_body(engine.url, CHAT, body)
    with reading(engine.url, index) as reader:
        settle(reader)
        assert index == {}
        assert value(engine.url, "text_chain_readers") == 1
        # What is cached is reported with the next request that finds it.
        delivered, *_ = post_body(engine.url, CHAT, body)
        settle(reader)
        assert 0 < promised(reader, CHAT, body) <= delivered + BLOCK
        assert value(engine.url, "text_pieces") == len(index)


def test_the_promise_is_what_the_engine_delivers(engine: Any) -> None:
    index: dict[int, int] = {}
    with reading(engine.url, index) as reader:
        assert index == {}
        first = question(1)
        delivered, size, answer = post_body(engine.url, CHAT, first)
        assert delivered == 0
        settle(reader)
        assert 0.8 * size < (promise := promised(reader, CHAT, first)) <= size
        again, *_ = post_body(engine.url, CHAT, first)
        assert promise <= again
        # The next turn finds the answer, too, ...
        reply = {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}
        messages = [*first["messages"], reply, {"role": "user", "content": "Go on."}]
        after = promised(reader, CHAT, second := first | {"messages": messages})
        delivered, *_ = post_body(engine.url, CHAT, second)
        assert promise <= after <= delivered
        # ... and a conversation of its own the instructions.
        common = promised(reader, CHAT, other := question(2))
        delivered, *_ = post_body(engine.url, CHAT, other)
        assert 0 < common <= delivered < common + 2 * BLOCK
        check_evictions(engine.url, reader)
        check_connections(engine.url, reader)
        reset_prefix_cache(engine)
        settle(reader)
        assert index == {}


def value(url: str, name: str) -> float:
    lines = httpx.get(f"{url}{paths.METRICS}").text.splitlines()
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"paternoster_engine_{name}{{"))


def check_evictions(url: str, reader: Reader) -> None:
    """The pool holds a few of these; what the index lost, the engine lost, and the other way around."""
    bodies = [question(number, f"{number} {SYSTEM}", max_tokens=1, min_tokens=1) for number in range(10, 16)]
    for body in bodies:
        post_body(url, CHAT, body)
    settle(reader)
    promises = [promised(reader, CHAT, body) for body in bodies]
    assert promises[0] == 0 < promises[-1]
    for body in reversed(bodies):
        settle(reader)
        promise = promised(reader, CHAT, body)
        delivered, size, _ = post_body(url, CHAT, body)
        assert promise <= delivered
        assert (promise == 0) == (delivered == 0) or delivered < 0.2 * size


def check_connections(url: str, reader: Reader) -> None:
    """One that resumes and one that does not have the same index as the one that never left."""
    settle(reader)
    assert reader.hello is not None
    instance = reader.hello.instance
    copy = dict(reader.index)
    after = reader.sequence
    post_body(url, CHAT, question(50))
    settle(reader)
    with reading(url, copy, instance=instance, after=after) as resumed:
        assert resumed.hello is not None
        assert resumed.hello.resumes
        assert copy == reader.index
    for params in ({}, {"instance": "0" * 32, "after": 1}, {"instance": instance, "after": after + 10**6}):
        with reading(url, other := {1: 1}, **params) as begun:
            assert begun.hello is not None
            assert not begun.hello.resumes
            assert other == reader.index


def test_completions_and_streams_report_their_prompts(engine: Any) -> None:
    with reading(engine.url, {}) as reader:
        body = {"prompt": SYSTEM * 2, "max_tokens": 40, "temperature": 0, "stream": True}
        for number in range(2):
            with httpx.stream("POST", f"{engine.url}/v1/completions", json=body, timeout=WAIT) as answer:
                cached = int(answer.headers[CACHED_TOKENS])
                answer.read()
            promise = promised(reader, "/v1/completions", body)
            assert cached == 0 if number == 0 else promise <= cached < promise + 3 * BLOCK
            settle(reader)


def test_readers_are_bounded_and_need_an_engine_whose_keys_are_a_gateways(run_engine: Any, tmp_path: Any) -> None:
    keys = tmp_path / "keys"
    keys.write_text("one-key-of-a-client-0123456789abcdef\n")
    with run_engine("--api-keys", str(keys), "--admin-keys", str(keys)) as engine:
        url, headers = engine.url + paths.TEXT_CHAINS, {"Authorization": "Bearer one-key-of-a-client-0123456789abcdef"}
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers=headers).status_code == 404
        assert httpx.get(engine.admin_url + paths.TEXT_CHAINS).status_code == 404
