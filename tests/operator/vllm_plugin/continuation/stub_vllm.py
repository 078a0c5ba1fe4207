"""An API server that answers as vLLM 0.32 does, whose tokens are bytes: each answer is written down before.

Its client of the engine has the methods of ``AsyncLLM`` that the plugin replaces, with the steps that these have there.
"""

import asyncio
import copy
import json
import sys
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.operator.vllm_plugin.continuation.stub_engine import (
    END_TOKEN,
    VOCAB_SIZE,
    CoreOutput,
    Params,
    Request,
    StubProcessor,
    StubQueue,
    build_output,
    rate_tokens,
)

from paternoster_vllm.server_facts import ServerFacts

NUMERICS = "vllm-a"
MAX_MODEL_LEN = 400
PROMPT = b"<user>hello<assistant>"
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
ENTRYPOINT = sys.modules.setdefault("vllm.entrypoints.stub", ModuleType("vllm.entrypoints.stub"))
"""Where the stub gets its ids and times, as modules of vLLM do."""
vars(ENTRYPOINT).update(uuid=uuid, time=time)


class StubCore:
    """Stub of the engine core's client: it makes the answer from where the prompt has it."""

    def __init__(self, vllm: "StubVllm", processor: StubProcessor) -> None:
        self.vllm = vllm
        self.processor = processor
        self.requests: list[Request] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def add_request_async(self, request: Request) -> None:
        assert request.prompt_token_ids[: len(PROMPT)] == list(PROMPT)
        self.requests.append(copy.copy(request))
        task = asyncio.create_task(self._make_answer(request))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _make_answer(self, request: Request) -> None:
        so_far, params = request.prompt_token_ids[len(PROMPT) :], request.sampling_params
        answer = self.vllm.answer_of(int(request.request_id.split("_")[0]) if "_" in request.request_id else 0)
        assert so_far == answer[: len(so_far)], "another answer"
        tokens, made = answer[len(so_far) :], 0
        while request.request_id in self.processor.request_states:
            await asyncio.sleep(self.vllm.pause)
            part = tokens[made : made + self.vllm.tokens_a_step][: params.max_tokens - made]
            made += len(part)
            reason = "stop" if part[-1] == END_TOKEN else "length" if made == params.max_tokens else None
            rows = [] if params.logprobs is None else [rate_tokens(token, params.logprobs) for token in part]
            self.processor.process_outputs([CoreOutput(request.request_id, part, reason, None, rows)])
            self.vllm.made += 1


class StubInputs:
    """Stub of ``InputProcessor``."""

    def assign_request_id(self, request: Request) -> None:
        request.request_id = f"{request.request_id}-{ENTRYPOINT.uuid.uuid4().hex}"


class StubClient:
    """Stub of ``AsyncLLM``."""

    def __init__(self, vllm: "StubVllm") -> None:
        self.output_processor = StubProcessor()
        self.engine_core = StubCore(vllm, self.output_processor)
        self.input_processor = StubInputs()
        self.errored = False
        self.is_full = False

    def check_admission(self) -> None:
        if self.is_full:
            raise RuntimeError("the queue is full")

    async def generate(self, prompt: list[int], params: Params) -> AsyncGenerator[Any]:
        request, queue = Request("cmpl", prompt, params), StubQueue()
        self.input_processor.assign_request_id(request)
        self.check_admission()
        children = [request]
        if params.n == 1:
            self.output_processor.add_request(request, None, None, 0, queue)
        else:
            parent = SimpleNamespace(n=params.n, left={f"{index}_{request.request_id}" for index in range(params.n)})
            children = [copy.copy(request) for _ in range(params.n)]
            for index, child in enumerate(children):
                child.request_id = f"{index}_{request.request_id}"
                self.output_processor.add_request(child, None, parent, index, queue)
        try:
            for child in children:
                await self.engine_core.add_request_async(child)
            finished = False
            while not finished:
                output = queue.get_nowait() or await queue.get()
                finished = output.finished
                yield output
        finally:
            for child in children:
                self.output_processor.request_states.pop(child.request_id, None)


class StubVllm:
    """Answers streams of chats, completions and responses; choice 1 has the answer backwards."""

    def __init__(self, answer: bytes, tokens_a_step: int = 1) -> None:
        self.answer = answer
        self.tokens_a_step = tokens_a_step
        self.client = StubClient(self)
        self.bodies: list[dict[str, Any]] = []
        self.breaks_at: list[int] = []
        """Frames after which an answer breaks off, the next one after the second number; may be several vLLMs' own."""
        self.break_frame = b""
        """What is written then; empty: the connection is lost."""
        self.pause = 0.0
        """Seconds between frames."""
        self.aborted = 0
        self.sent = 0
        """Frames of all answers."""
        self.made = 0
        """Steps of the engine."""

    def facts(self, numerics: str = NUMERICS, *, advances_grammars: bool = True) -> ServerFacts:
        """What the plugin reads of it."""
        return ServerFacts(
            numerics=numerics, vocab_size=VOCAB_SIZE, max_model_len=MAX_MODEL_LEN, client=self.client,
            build_output=build_output, advances_grammars=advances_grammars,
        )  # fmt: skip

    def answer_of(self, choice: int) -> list[int]:
        text = self.answer.decode()
        return [*(text if choice == 0 else text[::-1]).encode(), END_TOKEN]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if scope["method"] != "POST":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        document = json.loads(body)
        self.bodies.append(document)
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        leaving, number = asyncio.create_task(receive()), 0
        frames = self.write_frames(document, scope["path"])
        try:
            async for frame in frames:
                if leaving.done():  # as starlette's StreamingResponse listens
                    self.aborted += 1
                    return
                if self.breaks_at[:1] == [number]:
                    del self.breaks_at[0]
                    if not self.break_frame:
                        raise ConnectionError("the process was killed")
                    self.client.errored = self.break_frame.startswith(b"data")
                    await send({"type": "http.response.body", "body": self.break_frame + b"\n\n", "more_body": True})
                    self.client.errored = False
                    break
                await send({"type": "http.response.body", "body": frame + b"\n\n", "more_body": True})
                self.sent, number = self.sent + 1, number + 1
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        finally:
            leaving.cancel()
            await frames.aclose()
        await send({"type": "http.response.body", "body": b""})

    async def write_frames(self, body: dict[str, Any], path: str) -> AsyncGenerator[bytes]:
        """Write frames like ``chat_completion_stream_generator`` and its kin."""
        name = f"cmpl-{ENTRYPOINT.uuid.uuid4().hex}"
        begin = {"id": name, "created": int(ENTRYPOINT.time.time()), "model": body["model"]}
        prompt = list(body.get("prompt", PROMPT.decode()).encode())
        params = Params(
            max_tokens=body.get("max_tokens") or MAX_MODEL_LEN - len(prompt), n=body.get("n", 1),
            min_tokens=body.get("min_tokens", 0), stop=body.get("stop") or [],
            include_stop_str_in_output=body.get("include_stop_str_in_output", False), logprobs=body.get("logprobs"),
            presence_penalty=body.get("presence_penalty", 0), structured_outputs=body.get("response_format"),
        )  # fmt: skip
        outputs = self.client.generate(prompt, params)
        try:
            write = self._write_response if path == RESPONSES else self._write_choices
            async for frame in write(begin, body, outputs, path == CHAT):
                yield frame
        except RuntimeError as error:
            yield _dump({"error": {"message": str(error), "code": 503}})
            yield b"data: [DONE]"
        finally:
            await outputs.aclose()

    async def _write_choices(
        self, begin: dict[str, Any], body: dict[str, Any], outputs: AsyncIterator[Any], is_chat: bool
    ) -> AsyncIterator[bytes]:
        total, is_first, reasons = 0, True, []
        async for output in outputs:
            if is_first and is_chat:
                for index in range(body.get("n", 1)):
                    yield _dump({**begin, "choices": [{"index": index, "delta": {"role": "assistant", "content": ""}}]})
            is_first = False
            for each in output.outputs:
                total += len(each.token_ids)
                reasons.append(each.finish_reason)
                logprobs = None
                if each.logprobs is not None:
                    logprobs = [
                        [[token, value.logprob, value.rank] for token, value in position.items()]
                        for position in each.logprobs
                    ]
                choice = {"index": each.index} | ({"delta": {"content": each.text}} if is_chat else {"text": each.text})
                choice |= {"finish_reason": each.finish_reason, "stop_reason": each.stop_reason, "logprobs": logprobs}
                if each.text or each.finish_reason or not is_chat:
                    yield _dump({**begin, "choices": [choice]})
            prompt = len(output.prompt_token_ids)
        if (body.get("stream_options") or {}).get("include_usage"):
            yield _dump({**begin, "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": total}})
        yield b"data: [DONE]"

    async def _write_response(
        self, begin: dict[str, Any], body: dict[str, Any], outputs: AsyncIterator[Any], _: bool
    ) -> AsyncIterator[bytes]:
        """Frames before the engine has the request, several for one output, and a last one with the whole text."""
        yield b"event: response.created\n" + _dump(begin)
        text = ""
        async for output in outputs:
            if not text:
                yield b"event: response.output_item.added\n" + _dump({"item": ENTRYPOINT.uuid.uuid4().hex})
            text += output.outputs[0].text
            yield b"event: response.output_text.delta\n" + _dump({"delta": output.outputs[0].text})
        yield b"event: response.completed\n" + _dump({**begin, "text": text})


def _dump(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
