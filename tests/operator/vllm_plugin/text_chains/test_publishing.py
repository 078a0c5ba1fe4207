"""Gateways that read from the first call on, that join later and that were restarted find the same texts in a vLLM."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.operator.vllm_plugin.text_chains.gateway_index import CHAT, MODEL, GatewayIndex
from tests.operator.vllm_plugin.text_chains.stub_core import StubCore, StubScheduler, hash_blocks

from paternoster_contract.http import paths
from paternoster_contract.text_chains.stream import MAX_SUBSCRIBERS, MEDIA_TYPE, Frame, FrameReader, Heartbeat, Hello
from paternoster_gateway.routing.prefix_routing import NO_PREFIX, Prefix
from paternoster_vllm import engine_outputs
from paternoster_vllm.continuation import GATEWAY_ENV
from paternoster_vllm.text_chains import PIECES, block_watch, follow_texts, layer, publisher
from paternoster_vllm.text_chains.block_watch import read_text_chains

URL = "http://10.0.0.1:8000"
TEXT = "".join(f"{number} lifts that never stop. " for number in range(20))
QUESTION = {"model": MODEL, "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": TEXT}]}


class ByteTokenizer:
    """Each byte is a token, spelled as a vocabulary in the manner of GPT-2 spells it."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return list(text.encode())

    def convert_ids_to_tokens(self, tokens: list[int]) -> list[str]:
        return [chr(token + 0x100) if token <= 0x20 else chr(token) for token in tokens]

    def decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode()


class StubVllm:
    """An application and its client of the engine, by the names that vLLM has for these."""

    def __init__(self, scheduler: StubScheduler | None = None, *, has_text: bool = True) -> None:
        self.core = StubCore(scheduler)
        self.has_text = has_text
        self.silent, self.wakes = asyncio.Event(), asyncio.Event()
        self.fault: Exception | None = None
        self.calls: list[tuple[Any, ...]] = []
        """Arguments of each call of the core."""
        self.requests: list[Any] = []
        processor = SimpleNamespace(tokenizer=ByteTokenizer(), add_request=self._add_request)
        client = SimpleNamespace(
            output_processor=processor, engine_core=SimpleNamespace(call_utility_async=self._call_core)
        )
        model_config = SimpleNamespace(served_model_name=[MODEL, "alias"])
        self.server = SimpleNamespace(should_exit=False)
        self.state = SimpleNamespace(
            engine_client=client, vllm_config=SimpleNamespace(model_config=model_config), server=self.server
        )
        self.layer = follow_texts(self)

    async def _call_core(self, method: str, *args: Any) -> Any:
        assert method == "paternoster_text_chains"
        self.calls.append(args)
        if self.silent.is_set():
            await self.wakes.wait()
        if self.fault is not None:
            raise self.fault
        return read_text_chains(self.core, *args)

    def _add_request(self, request: Any, prompt: Any, parent: Any, index: int, queue: Any) -> None:
        self.requests.append(request)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET":
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"vLLM's own"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        document = json.loads(body)
        text = "".join(f"<|{each['role']}|>{each['content']}\n" for each in document["messages"]) + "<|assistant|>"
        for number in range(document.get("n", 1)):
            request = SimpleNamespace(
                prompt_token_ids=list(text.encode()), mm_features=document.get("images"), lora_request=None,
                sampling_params=SimpleNamespace(extra_args=None),
            )  # fmt: skip
            prompt = text if self.has_text else None
            self.state.engine_client.output_processor.add_request(request, prompt, None, number, None)
            name = f"{len(self.requests)}"
            self.core.scheduler.add_request(name, request.prompt_token_ids, [])
            self.core.scheduler.requests[name].sampling_params = request.sampling_params
        self.core.scheduler.schedule()

    async def send_chat(self, body: Any = QUESTION) -> None:
        data = json.dumps(body).encode()
        messages = [{"type": "http.request", "body": data[:9], "more_body": True},
                    {"type": "http.request", "body": data[9:], "more_body": False}]  # fmt: skip

        async def receive() -> Any:
            return messages.pop(0)

        async def send(_: Any) -> None:
            raise AssertionError("nothing is sent")

        scope = {"type": "http", "path": CHAT, "method": "POST", "app": SimpleNamespace(state=self.state)}
        await self.layer(scope, receive, send)


class Stream:
    """One connection of a gateway to the stream."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.is_ended = asyncio.Event()
        self.takes_bytes = asyncio.Event()
        self.takes_bytes.set()
        self.frames: asyncio.Queue[Frame] = asyncio.Queue()
        self._reader = FrameReader()

    async def send(self, message: Any) -> None:
        await self.takes_bytes.wait()
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        elif self.status != 200:
            self.body += message["body"]
        else:
            for frame in self._reader.feed(message["body"]):
                self.frames.put_nowait(frame)
            if not message.get("more_body"):
                self.is_ended.set()


@asynccontextmanager
async def connect(vllm: StubVllm, query: str = "") -> AsyncIterator[Stream]:
    stream, leaves = Stream(), asyncio.Event()

    async def receive() -> Any:
        await leaves.wait()
        return {"type": "http.disconnect"}

    app = SimpleNamespace(state=vllm.state)
    scope = {"type": "http", "path": paths.TEXT_CHAINS, "method": "GET", "query_string": query.encode(), "app": app}
    task = asyncio.create_task(vllm.layer(scope, receive, stream.send))
    try:
        yield stream
    finally:
        leaves.set()
        await task


class Gateway(GatewayIndex):
    """Reads the stream of a stub."""

    def __init__(self) -> None:
        super().__init__(URL)

    @property
    def query(self) -> str:
        return "&".join(f"{name}={value}" for name, value in self.reader.start_connection().items())

    async def read_until(self, stream: Stream, is_met: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_met():
                self.apply([await stream.frames.get()])


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GATEWAY_ENV, "1")
    monkeypatch.setattr(publisher, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(publisher, "HEARTBEAT_SECONDS", 0.05)


@pytest.mark.parametrize("has_text", [True, False])
async def test_a_gateway_that_joins_and_a_restarted_one_find_what_the_first_finds(*, has_text: bool) -> None:
    vllm, first, joined, restarted = StubVllm(has_text=has_text), Gateway(), Gateway(), Gateway()
    async with connect(vllm, first.query) as stream:
        await first.read_until(stream, lambda: first.reader.is_whole)
        assert await first.find(QUESTION) == NO_PREFIX
        await vllm.send_chat()
        await first.read_until(stream, lambda: first.num_pieces > 0)
        found = await first.find(QUESTION)
        async with connect(vllm, joined.query) as other:
            await joined.read_until(other, lambda: joined.reader.is_whole)
            assert await joined.find(QUESTION) == found
    # A piece ends behind the instructions, and at each 128 bytes of text and marks: the last at the 489th of TEXT.
    assert found == Prefix(5, len("<|system|>Be short.\n<|user|>") + 489 - 1)
    async with connect(vllm, restarted.query) as stream:
        await restarted.read_until(stream, lambda: restarted.reader.is_whole)
        assert await restarted.find(QUESTION) == found
        key = hash_blocks(vllm.requests[0].prompt_token_ids[:4])
        vllm.core.scheduler.pool.evict(key)
        await restarted.read_until(stream, lambda: not restarted.num_pieces)
        assert await restarted.find(QUESTION) == NO_PREFIX


async def test_a_connection_that_was_lost_resumes_behind_the_last_change() -> None:
    vllm, gateway = StubVllm(), Gateway()
    async with connect(vllm, gateway.query) as stream:
        await gateway.read_until(stream, lambda: gateway.reader.is_whole)
    await vllm.send_chat()
    async with connect(vllm, gateway.query) as stream:
        hello = await stream.frames.get()
        assert isinstance(hello, Hello)
        assert (hello.resumes, hello.model, hello.isolates_tenants) == (True, MODEL, False)
        assert (stream.headers[b"content-type"], stream.status) == (MEDIA_TYPE.encode(), 200)


async def test_the_core_is_asked_for_changes_alone_however_many_gateways_read() -> None:
    vllm, gateways = StubVllm(), [Gateway() for _ in range(3)]
    async with AsyncExitStack() as stack:
        for gateway in gateways:
            stream = await stack.enter_async_context(connect(vllm, gateway.query))
            await gateway.read_until(stream, lambda gateway=gateway: gateway.reader.is_whole)
            await vllm.send_chat({**QUESTION, "user": gateway.url})
            await gateway.read_until(stream, lambda gateway=gateway: gateway.num_pieces > 0)
    (first, *later), instance = vllm.calls, gateways[0].reader.start_connection()["instance"]
    assert first == ("", 0)
    assert {call[0] for call in later} == {instance}


async def test_where_changes_are_not_kept_a_gateway_reads_all_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the core for the API server, nor by the API server for a gateway that is too slow."""
    vllm, gateway = StubVllm(), Gateway()
    monkeypatch.setattr(block_watch, "MAX_REPLAY_BYTES", 0)
    async with asyncio.timeout(10), connect(vllm, gateway.query) as stream:
        await gateway.read_until(stream, lambda: gateway.reader.is_whole)
        await vllm.send_chat()
        await stream.is_ended.wait()
    assert await gateway.find(QUESTION) == NO_PREFIX
    async with connect(vllm, gateway.query) as stream:
        await gateway.read_until(stream, lambda: gateway.reader.is_whole and gateway.num_pieces > 0)


async def test_a_gateway_that_is_too_slow_reads_all_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection takes no byte while more changes come than are kept."""
    vllm, gateway = StubVllm(), Gateway()
    monkeypatch.setattr(block_watch, "MAX_REPLAY_BYTES", 200)
    async with asyncio.timeout(10), connect(vllm, gateway.query) as stream:
        await gateway.read_until(stream, lambda: gateway.reader.is_whole)
        stream.takes_bytes.clear()
        for number in range(8):
            before = len(vllm.calls)
            await vllm.send_chat({"model": MODEL, "messages": [{"role": "user", "content": f"{number}{TEXT}"}]})
            while len(vllm.calls) < before + 2:
                await asyncio.sleep(0.01)
        stream.takes_bytes.set()
        await stream.is_ended.wait()


async def test_other_texts_and_salts_are_not_found() -> None:
    vllm, gateway = StubVllm(), Gateway()
    async with connect(vllm, gateway.query) as stream:
        await gateway.read_until(stream, lambda: gateway.reader.is_whole)
        await vllm.send_chat()
        await gateway.read_until(stream, lambda: gateway.num_pieces > 0)
    assert await gateway.find({**QUESTION, "cache_salt": "mine"}) == NO_PREFIX
    assert await gateway.find({**QUESTION, "tools": [{"type": "function", "function": {"name": "f"}}]}) == NO_PREFIX


async def test_texts_are_not_read_for_nobody_nor_of_what_depends_on_more(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm = StubVllm()
    await vllm.send_chat()
    async with connect(vllm) as stream:
        await stream.frames.get()
        await vllm.send_chat({**QUESTION, "images": ["a picture"]})
        await vllm.send_chat({**QUESTION, "n": 2})
    await vllm.send_chat()  # a gateway that restarts finds it
    monkeypatch.setattr(publisher, "LINGER_SECONDS", 0.0)
    await vllm.send_chat()
    monkeypatch.setattr(publisher, "LINGER_SECONDS", 600.0)
    monkeypatch.setattr(layer, "MAX_BYTES", 50)
    await vllm.send_chat()
    has_pieces = [PIECES in (request.sampling_params.extra_args or {}) for request in vllm.requests]
    assert has_pieces == [False, False, True, False, True, False, False]


async def test_where_clients_have_keys_of_the_api_nothing_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(GATEWAY_ENV)
    async with connect(StubVllm()) as stream:
        await asyncio.sleep(0)
    assert (stream.status, stream.body) == (404, b"vLLM's own")


async def test_a_core_without_the_plugin_is_404_with_its_reason() -> None:
    vllm = StubVllm()
    vllm.fault = AttributeError("'EngineCoreProc' object has no attribute 'paternoster_text_chains'")
    async with connect(vllm) as stream:
        await asyncio.sleep(0)
    assert stream.status == 404
    assert b"this vLLM keeps no text chains: 'EngineCoreProc' object has no attribute" in stream.body


async def test_readers_are_bounded() -> None:
    vllm = StubVllm()
    vllm.silent.set()
    async with AsyncExitStack() as stack:
        for _ in range(MAX_SUBSCRIBERS):
            await stack.enter_async_context(connect(vllm))
        refused = await stack.enter_async_context(connect(vllm))
        await asyncio.sleep(0)
        assert (refused.status, refused.headers[b"retry-after"]) == (503, b"5")
        vllm.wakes.set()


async def test_a_step_without_an_end_leaves_heartbeats_and_a_dead_core_or_server_ends_the_stream() -> None:
    vllm = StubVllm()
    async with asyncio.timeout(10), connect(vllm) as stream:
        for _ in range(2):
            await stream.frames.get()
        vllm.silent.set()
        assert [await stream.frames.get() for _ in range(3)] == [Heartbeat(0)] * 3
        assert not stream.is_ended.is_set()
        vllm.server.should_exit = True
        await stream.is_ended.wait()
    vllm.silent.clear()
    vllm.wakes.set()
    vllm.server.should_exit = False
    async with asyncio.timeout(10), connect(vllm) as stream:
        await stream.frames.get()
        vllm.fault = RuntimeError("EngineDeadError")
        await stream.is_ended.wait()


async def test_pieces_are_no_arguments_of_a_client_that_keep_a_stream_from_going_on() -> None:
    outputs = engine_outputs.EngineOutputs(engine_outputs.Progress(), lambda *_: None, 100, advances_grammars=True)
    params = SimpleNamespace(extra_args={PIECES: b""}, logprobs=None, structured_outputs=None)
    request = SimpleNamespace(sampling_params=params, mm_features=None, prompt_embeds=None)
    assert outputs._find_unsupported(request) is None
    params.extra_args["a"] = 1
    assert outputs._find_unsupported(request) == "extra_args"


def test_the_path_is_that_of_gateways() -> None:
    assert layer.TEXT_CHAINS == paths.TEXT_CHAINS


async def test_a_tokenizer_that_differs_costs_no_request() -> None:
    vllm = StubVllm()
    async with connect(vllm) as stream:
        await stream.frames.get()
        vllm.state.engine_client.output_processor.tokenizer.convert_ids_to_tokens = lambda tokens: []
        for number in (1, 2):
            await vllm.send_chat()
            assert len(vllm.requests) == number
    assert not any(PIECES in (request.sampling_params.extra_args or {}) for request in vllm.requests)
