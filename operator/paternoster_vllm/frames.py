"""Frames of server-sent events as vLLM writes them, with lines of the journal before them; pure."""

import json
from collections.abc import Sequence
from typing import Any

from paternoster_vllm.stream_journal import COMMENT, END, FAILED, FINISH_REASONS, HAND_OVER, Head, encode_entry
from paternoster_vllm.streamed_call import StreamedCall

MAX_FRAME_BYTES = 16 * 2**20
DONE = b"data: [DONE]"
_DATA = b"data: "


class FrameSplitter:
    """Whole frames of the pieces of a stream."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that end in ``data``, without the empty line behind each."""
        *frames, self._buffer = (self._buffer + data).split(END)
        if len(self._buffer) > MAX_FRAME_BYTES:
            raise ValueError(f"vLLM wrote a frame of more than {MAX_FRAME_BYTES} bytes")
        return frames


def write_line(entry: str | bytes, frame: bytes) -> bytes:
    """``frame`` behind its line of the journal."""
    return COMMENT + (entry.encode() if isinstance(entry, str) else entry) + b"\n" + frame + END


def encode_frame(document: Any) -> bytes:
    return _DATA + json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def decode_frame(frame: bytes) -> dict[str, Any] | None:
    """The object of ``frame``; None for a comment and for the last frame of all."""
    if not frame.startswith(_DATA) or frame == DONE:
        return None
    document = json.loads(frame[len(_DATA) :])
    return document if isinstance(document, dict) else None


def find_break(document: dict[str, Any]) -> bytes:
    """What is written in place of a frame with which vLLM ends the answer though the model did not; else empty."""
    error = document.get("error")
    if isinstance(error, dict):
        code = error.get("code")
        return b"" if isinstance(code, int) and code < 500 else FAILED + END + HAND_OVER + END
    reasons = [choice.get("finish_reason") for choice in document.get("choices", [])]
    aborted = any(reason not in (None, *FINISH_REASONS) for reason in reasons)
    return HAND_OVER + END if aborted else b""


class JournalWriter:
    """Writes the journal of a stream that begins, and takes the tokens out of frames that should not have them."""

    def __init__(self, call: StreamedCall) -> None:
        self._call = call
        self._has_head = False
        self.ended = False
        """Whether nothing follows."""
        self.cuts = False

    def write_frame(self, frame: bytes) -> bytes:
        """``frame`` of vLLM as the gateway gets it."""
        document = decode_frame(frame)
        if document is None:
            self.ended = frame == DONE
            return write_line("[]", frame)
        if broken := find_break(document):
            self.ended = True
            return broken
        if "choices" not in document:
            return write_line("[]", frame)
        prompt, tokens, reason = self._take_tokens(document)
        entry: str | bytes = encode_entry(tokens, reason)
        if not self._has_head and prompt:
            self._has_head = True
            head = Head(document["id"], document["created"], document["model"], tuple(prompt))
            entry = head.encode(str(entry))
        return write_line(entry, frame if self._call.wants_tokens else encode_frame(document))

    def _take_tokens(self, document: dict[str, Any]) -> tuple[list[int], list[int], str | None]:
        """Tokens of the prompt and of the answer, and why it ends; ``document`` is as without ``return_token_ids``."""
        choice: dict[str, Any] = next(iter(document["choices"]), {})
        prompt = _take_value(document, "prompt_token_ids") or _take_value(choice, "prompt_token_ids")
        return prompt, _take_value(choice, "token_ids"), choice.get("finish_reason")


def _take_value(holder: dict[str, Any], name: str) -> list[int]:
    value: list[int] | None = holder.get(name)
    if value:
        holder[name] = None
    return value or []


class FrameBuilder:
    """Frames of a stream that goes on, as vLLM would have written them."""

    def __init__(self, call: StreamedCall, head: Head, fingerprint: str | None) -> None:
        self._call = call
        self._head = head
        self._fingerprint = fingerprint

    def build_text(
        self, text: str, tokens: Sequence[int], finish_reason: str | None, stop_reason: int | str | None, total: int
    ) -> bytes:
        """The frame of ``text``; ``total``: tokens of the answer with those of this frame."""
        call, stated = self._call, list(tokens) if self._call.wants_tokens else None
        choice: dict[str, Any] = {"index": 0}
        choice |= {"delta": {"content": text}} if call.is_chat else {"text": text}
        choice |= {"logprobs": None, "finish_reason": finish_reason}
        if finish_reason is not None or not call.is_chat:
            choice["stop_reason"] = stop_reason
        if not call.is_chat:
            choice["prompt_token_ids"] = None
        document = self._begin_document() | {"choices": [{**choice, "token_ids": stated}]}
        if finish_reason is not None and not call.includes_usage and self._fingerprint is not None:
            document["system_fingerprint"] = self._fingerprint
        if call.continuous_usage:
            document["usage"] = self._count_usage(total)
            if call.is_chat:
                document["usage"]["completion_tokens_details"] = None
        return encode_frame(document)

    def build_end(self, total: int) -> list[bytes]:
        """The frames behind that with the finish reason."""
        usage = self._begin_document() | {"choices": [], "usage": self._count_usage(total)}
        if self._fingerprint is not None:
            usage["system_fingerprint"] = self._fingerprint
        return [encode_frame(usage), DONE] if self._call.includes_usage else [DONE]

    def _begin_document(self) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._call.is_chat else "text_completion"
        head = self._head
        return {"id": head.id, "object": kind, "created": head.created, "model": head.model}

    def _count_usage(self, total: int) -> dict[str, int | None]:
        prompt = len(self._head.prompt)
        return {"prompt_tokens": prompt, "total_tokens": prompt + total, "completion_tokens": total}
