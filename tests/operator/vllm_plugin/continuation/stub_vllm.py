"""An application of ASGI that answers as vLLM 0.32 does, whose tokens are bytes: each answer is written down before."""

import asyncio
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from paternoster_vllm.server_facts import ServerFacts

NUMERICS = "vllm-a"
END_TOKEN = 256
VOCAB_SIZE = 257
MAX_MODEL_LEN = 400
PROMPT = b"<user>hello<assistant>"


class StubDetokenizer:
    """The steps of ``vllm.v1.engine.detokenizer.BaseIncrementalDetokenizer``, for tokens that are bytes of UTF-8."""

    def __init__(self, request: SimpleNamespace) -> None:
        params = request.sampling_params
        self.stop = [params.stop] if isinstance(params.stop, str) else params.stop
        self.min_tokens = params.min_tokens
        self.include = params.include_stop_str_in_output
        self.held = max(map(len, self.stop)) - 1 if self.stop and not self.include else 0
        self.tokens: list[int] = []
        self.text = ""
        self.sent = 0
        self._bytes = b""

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        before, offsets = len(self.tokens), [len(self.text)]
        for token in new_token_ids:
            self.tokens.append(token)
            is_end = stop_terminated and not self.include and token is new_token_ids[-1]
            self.text += "" if is_end else self._decode_next(token)
            offsets.append(len(self.text))
        if len(self.tokens) <= self.min_tokens:
            return None
        searched_from = offsets[min(max(self.min_tokens - before, 0), len(new_token_ids))]
        found = []
        for stop in self.stop:
            start = self.text.find(stop, max(0, searched_from + 1 - len(stop)))
            if start >= 0:
                found.append((start + len(stop), stop, start))
        if not found or not new_token_ids:
            return None
        end, stop, start = min(found, key=lambda each: each[0])
        used = next(index for index, offset in enumerate(offsets) if offset >= end and index)
        del self.tokens[before + used :]
        self.text = self.text[: end if self.include else start]
        return stop

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        assert delta
        end = len(self.text) - (0 if finished else self.held)
        text = self.text[self.sent : end] if end > self.sent else ""
        self.sent = max(self.sent, end)
        return text

    def num_output_tokens(self) -> int:
        return len(self.tokens)

    def _decode_next(self, token: int) -> str:
        if token == END_TOKEN:
            return ""
        self._bytes += bytes([token])
        try:
            text = self._bytes.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                return ""
            text = self._bytes.decode(errors="replace")
        self._bytes = b""
        return text


def facts(numerics: str = NUMERICS, *, parses_chat: bool = False) -> ServerFacts:
    """What the plugin reads of the stub."""
    return ServerFacts(
        numerics=numerics, vocab_size=VOCAB_SIZE, max_model_len=MAX_MODEL_LEN, default_max_tokens=None,
        most_tokens=None, forces_usage=False, parses_chat=parses_chat, fingerprint="vllm-0.32.0-abc",
        make_detokenizer=StubDetokenizer,
    )  # fmt: skip


class StubVllm:
    """Answers streams of chats and completions; the rest of an answer follows what the prompt has of it."""

    def __init__(self, answer: bytes, tokens_a_frame: int = 1) -> None:
        self.answer = [*answer, END_TOKEN]
        self.tokens_a_frame = tokens_a_frame
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.break_after: int | None = None
        """Frames after which an answer breaks off."""
        self.breaks = 1
        """How many answers do."""
        self.break_frame = b""
        """What is written then; empty: the connection is lost."""
        self.pause = 0.0
        """Seconds between frames."""
        self.aborted = 0
        self.sent = 0
        """Frames of all answers."""

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
        self.paths.append(scope["path"])
        if scope["method"] != "POST":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        document = json.loads(body)
        self.bodies.append(document)
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        leaving = asyncio.create_task(receive())
        try:
            for number, frame in enumerate(self.write_frames(document, scope["path"].endswith("/chat/completions"))):
                if leaving.done():  # as starlette's StreamingResponse listens
                    self.aborted += 1
                    return
                if self.break_after == number and self.breaks:
                    self.breaks -= 1
                    if not self.break_frame:
                        raise ConnectionError("the process was killed")
                    await send({"type": "http.response.body", "body": self.break_frame + b"\n\n", "more_body": True})
                    break
                await send({"type": "http.response.body", "body": b"data: " + frame + b"\n\n", "more_body": True})
                self.sent += 1
                await asyncio.sleep(self.pause)
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        finally:
            leaving.cancel()
        await send({"type": "http.response.body", "body": b""})

    def write_frames(self, body: dict[str, Any], is_chat: bool) -> Iterator[bytes]:
        """The data of each frame, as ``chat_completion_stream_generator`` and its like write them."""
        prompt, so_far = self._read_prompt(body)
        stated, options = body.get("return_token_ids"), body.get("stream_options") or {}
        usage, continuous = options.get("include_usage"), options.get("continuous_usage_stats")
        begin: dict[str, Any] = {
            "id": "chatcmpl-abc" if is_chat else "cmpl-abc",
            "object": "chat.completion.chunk" if is_chat else "text_completion",
            "created": 1795792422, "model": body["model"],
        }  # fmt: skip

        def count(total: int) -> dict[str, Any]:
            return {"prompt_tokens": len(prompt), "total_tokens": len(prompt) + total, "completion_tokens": total}

        details: dict[str, Any] = {"completion_tokens_details": None} if is_chat else {}

        if is_chat:
            delta = {"role": "assistant", "content": ""}
            choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            frame = {**begin, "choices": [choice], "prompt_token_ids": prompt if stated else None, "prompt_text": None}
            yield _dump(frame | ({"usage": count(0) | details} if continuous else {}))
        request = SimpleNamespace(
            stop=body.get("stop") or [], min_tokens=body.get("min_tokens", 0),
            include_stop_str_in_output=body.get("include_stop_str_in_output", False),
        )  # fmt: skip
        detokenizer = StubDetokenizer(SimpleNamespace(sampling_params=request))
        limit = body.get("max_tokens") or MAX_MODEL_LEN - len(prompt)
        tokens, reason = self.answer[so_far : so_far + limit], None
        for start in range(0, len(tokens), self.tokens_a_frame):
            part = tokens[start : start + self.tokens_a_frame]
            if part[-1] == END_TOKEN:
                reason = "stop"
            elif start + len(part) == limit:
                reason = "length"
            before = detokenizer.num_output_tokens()
            matched = detokenizer.update(part, reason == "stop")
            reason = reason if matched is None else "stop"
            part = part[: detokenizer.num_output_tokens() - before]
            text = detokenizer.get_next_output_text(reason is not None, True)
            choice = {"index": 0} | ({"delta": {"content": text}} if is_chat else {"text": text})
            choice |= {"logprobs": None, "finish_reason": reason}
            if reason or not is_chat:
                choice["stop_reason"] = matched
            if not is_chat:
                choice["prompt_token_ids"] = prompt if stated and start == 0 else None
            choice["token_ids"] = part if stated else None
            frame = {**begin, "choices": [choice]}
            if reason and not usage:
                frame["system_fingerprint"] = "vllm-0.32.0-abc"
            if continuous:
                frame["usage"] = count(detokenizer.num_output_tokens()) | details
            yield _dump(frame)
            if reason:
                break
        if usage:
            last = {"choices": [], "usage": count(detokenizer.num_output_tokens())}
            yield _dump({**begin, **last, "system_fingerprint": "vllm-0.32.0-abc"})
        yield b"[DONE]"

    def _read_prompt(self, body: dict[str, Any]) -> tuple[list[int], int]:
        """The tokens of the prompt, and how many of them are of the answer."""
        prompt = body.get("prompt", PROMPT.decode())
        tokens = list(prompt.encode()) if isinstance(prompt, str) else prompt
        assert tokens[: len(PROMPT)] == list(PROMPT)
        so_far = tokens[len(PROMPT) :]
        assert so_far == self.answer[: len(so_far)], "another answer"
        return tokens, len(so_far)


def _dump(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
