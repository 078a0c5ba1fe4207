"""From what an answer consists of to a message: whole, and as the events of a stream. Pure but for new ids."""

import hashlib
from collections.abc import Callable, Iterable, Iterator

from paternoster_engine.core.request import FinishReason
from paternoster_engine.server.continuation.stream_call import new_hex
from paternoster_engine.server.generation.generation import Usage
from paternoster_engine.server.messages.objects import (
    BlockDelta,
    BlockDeltaEvent,
    BlockStart,
    BlockStop,
    ErrorEvent,
    InputDelta,
    MessageDelta,
    MessageEvent,
    MessageObject,
    MessageStart,
    MessageStop,
    MessageUsage,
    OutputBlock,
    SignatureDelta,
    Stopped,
    StopReason,
    TextDelta,
    TextOutput,
    ThinkingDelta,
    ThinkingOutput,
    ToolUseOutput,
)
from paternoster_engine.server.openai.messages import arguments_object
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Event, Reasoning
from paternoster_engine.server.translation.answer import AnswerEnd
from paternoster_http.errors.anthropic_errors import error_body


class MessageAnswer:
    """One message while it grows."""

    def __init__(self, model: str, new_call_id: Callable[[], str], max_tokens: int, *, thinking: bool = True) -> None:
        """``max_tokens``: the limit of the request, whatever the context leaves. ``thinking``: show what is thought."""
        self.id = f"msg_{new_hex()}"
        self._message = MessageObject(id=self.id, model=model, usage=_message_usage(Usage(0, 0)))
        self._new_call_id = new_call_id
        self._max_tokens = max_tokens
        self._thinking = thinking
        self._block: OutputBlock | None = None
        self._text: list[str] = []
        """Pieces of the open block's text, thinking or input."""
        self._num_calls = 0

    def start_frames(self, usage: Usage) -> Iterator[MessageEvent]:
        self._message.usage = _message_usage(usage)
        yield MessageStart(message=self._message.model_copy(update={"content": []}))

    def event_frames(self, events: Iterable[Event]) -> Iterator[MessageEvent]:
        for event in events:
            match event:
                case Content(text):
                    if not isinstance(self._block, TextOutput):
                        yield from self._open_block(TextOutput(text=""))
                    yield self._block_delta(text, TextDelta(text=text))
                case Reasoning(text):
                    if not isinstance(self._block, ThinkingOutput):
                        yield from self._open_block(ThinkingOutput(thinking="", signature=""))
                    if self._thinking:
                        yield self._block_delta(text, ThinkingDelta(thinking=text))
                case CallBegin(name):
                    self._num_calls += 1
                    yield from self._open_block(ToolUseOutput(id=self._new_call_id(), name=name, input={}))
                case Arguments(text):
                    yield self._block_delta(text, InputDelta(partial_json=text))

    def end_frames(self, end: AnswerEnd) -> Iterator[MessageEvent]:
        yield from self._close()
        message = self._message
        message.stop_reason = self._stop_reason(end)
        message.stop_sequence = end.stop
        message.usage = _message_usage(end.usage)
        stopped = Stopped(stop_reason=message.stop_reason, stop_sequence=message.stop_sequence)
        yield MessageDelta(delta=stopped, usage=message.usage)
        yield MessageStop()

    def failure_frames(self, status: int, message: str) -> Iterator[MessageEvent]:
        """After a failure in mid-stream."""
        yield ErrorEvent.model_validate(error_body(status, message))

    def build_answer(self) -> MessageObject:
        """After :meth:`end_frames`."""
        return self._message

    def _stop_reason(self, end: AnswerEnd) -> StopReason:
        if end.reason is FinishReason.LENGTH:
            cut = end.usage.completion_tokens < self._max_tokens
            return "model_context_window_exceeded" if cut else "max_tokens"
        if end.stop is not None:
            return "stop_sequence"
        return "tool_use" if self._num_calls else "end_turn"

    def _open_block(self, block: OutputBlock) -> Iterator[MessageEvent]:
        yield from self._close()
        self._block = block
        yield BlockStart(index=len(self._message.content), content_block=block.model_copy())

    def _close(self) -> Iterator[MessageEvent]:
        block, text = self._block, "".join(self._text)
        if block is None:
            return
        index = len(self._message.content)
        match block:
            case TextOutput():
                block.text = text
            case ThinkingOutput():
                block.thinking, block.signature = text, _thinking_signature(text)
                yield BlockDeltaEvent(index=index, delta=SignatureDelta(signature=block.signature))
            case ToolUseOutput():
                block.input = arguments_object(text)
        yield BlockStop(index=index)
        self._message.content.append(block)
        self._block, self._text = None, []

    def _block_delta(self, text: str, delta: BlockDelta) -> BlockDeltaEvent:
        self._text.append(text)
        return BlockDeltaEvent(index=len(self._message.content), delta=delta)


def _thinking_signature(thinking: str) -> str:
    """Clients drop thinking that has none, and do not send it back. Nothing checks it: there is nothing to protect."""
    return hashlib.sha256(thinking.encode()).hexdigest()


def _message_usage(usage: Usage) -> MessageUsage:
    return MessageUsage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
    )
