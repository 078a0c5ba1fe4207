"""From what an answer consists of to a response: whole, and as the events of a stream. Pure but for new ids."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from paternoster_engine.core.request import FinishReason
from paternoster_engine.server.continuation.stream_call import created_time, new_hex
from paternoster_engine.server.generation.generation import Usage
from paternoster_engine.server.generation.output_text import TokenText
from paternoster_engine.server.openai.logprobs import ChatTokenLogprob
from paternoster_engine.server.openai.messages import arguments_object
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Event, Reasoning
from paternoster_engine.server.responses.objects import (
    CustomToolCallItem,
    ErrorCode,
    FunctionCallItem,
    IncompleteDetails,
    InputTokensDetails,
    ItemStatus,
    MessageItem,
    OutputItem,
    OutputText,
    OutputTokensDetails,
    ReasoningItem,
    ReasoningText,
    ResponseError,
    ResponseObject,
    ResponseUsage,
    StreamEvent,
    ToolSearchCallItem,
)
from paternoster_engine.server.responses.offered import INPUT
from paternoster_engine.server.responses.requests import ResponsesRequest
from paternoster_engine.server.responses.tools import choice_object, tool_object
from paternoster_engine.server.translation.answer import AnswerEnd
from paternoster_engine.server.translation.argument_text import ArgumentText
from paternoster_engine.server.translation.tools import OfferedTool


class ResponseAnswer:
    """One response while it grows. A whole answer is what the stream's last event has."""

    def __init__(
        self,
        model: str,
        body: ResponsesRequest,
        tools: Mapping[str, OfferedTool],
        new_call_id: Callable[[], str],
        spelled: Callable[[Sequence[TokenText]], list[ChatTokenLogprob]],
    ) -> None:
        """``tools``: by the names of the chat's functions. ``spelled``: how likely tokens were, in the chat's words."""
        self.id = _new_id("resp")
        self._response = _response_of_request(self.id, model, body)
        self._tools = tools
        self._new_call_id = new_call_id
        self._spelled = spelled
        self._sequence = 0
        self._item: OutputItem | None = None
        self._text: list[str] = []
        """Pieces of the open item's text, arguments or input."""
        self._input = ArgumentText(INPUT)
        """Input of the open custom call."""
        self._logprobs: list[ChatTokenLogprob] = []
        """Log probabilities of the open message."""
        self._without_bytes: list[dict[str, Any]] = []
        """Log probabilities of the open message, as events of streams have them."""

    def start_frames(self, usage: Usage) -> Iterator[StreamEvent]:
        yield self._next_event("response.created", response=self._copy_response())
        yield self._next_event("response.in_progress", response=self._copy_response())

    def event_frames(self, events: Iterable[Event]) -> Iterator[StreamEvent]:
        for event in events:
            match event:
                case Content(text, tokens):
                    yield from self._begin_message()
                    logprobs = self._spelled(tokens)
                    self._logprobs += logprobs
                    short = _without_bytes(logprobs)
                    self._without_bytes += short
                    yield self._delta_event("output_text", text, content_index=0, logprobs=short)
                case Reasoning(text):
                    yield from self._begin_reasoning()
                    yield self._delta_event("reasoning_text", text, content_index=0)
                case CallBegin(name):
                    yield from self._open_item(self._call_item(name))
                case Arguments(text):
                    yield from self._argument_events(text)

    def end_frames(self, end: AnswerEnd) -> Iterator[StreamEvent]:
        if not self._response.output and self._item is None:
            # An answer that ended at once is an empty message.
            yield from self._begin_message()
        cut = end.reason is FinishReason.LENGTH
        yield from self._close("incomplete" if cut else "completed")
        response = self._response
        response.usage = _response_usage(end.usage)
        if cut:
            response.status, response.incomplete_details = "incomplete", IncompleteDetails()
        else:
            response.status, response.completed_at = "completed", int(time.time())
        yield self._next_event(f"response.{response.status}", response=response)

    def failure_frames(self, status: int, message: str) -> Iterator[StreamEvent]:
        """After a failure in mid-stream."""
        yield from self._close("incomplete")
        self._response.status, self._response.error = "failed", ResponseError(code=_error_code(status), message=message)
        yield self._next_event("response.failed", response=self._response)

    def build_answer(self) -> ResponseObject:
        """After :meth:`end_frames`."""
        return self._response

    def _begin_message(self) -> Iterator[StreamEvent]:
        if not isinstance(self._item, MessageItem):
            yield from self._open_item(MessageItem(id=_new_id("msg"), status="in_progress", content=[]))
            yield self._part_event("added", OutputText(text=""))

    def _begin_reasoning(self) -> Iterator[StreamEvent]:
        if not isinstance(self._item, ReasoningItem):
            yield from self._open_item(ReasoningItem(id=_new_id("rs"), status="in_progress", content=[]))
            yield self._part_event("added", ReasoningText(text=""))

    def _call_item(self, name: str) -> OutputItem:
        """The item of a call of the chat's function ``name``."""
        tool = self._tools.get(name)
        kind = "function" if tool is None else tool.kind
        fields: Any = {"status": "in_progress", "call_id": self._new_call_id()}
        if kind == "tool_search":
            return ToolSearchCallItem(id=_new_id("tsc"), arguments={}, **fields)
        fields |= {"name": name} if tool is None else {"name": tool.client_name, "namespace": tool.namespace}
        if kind == "custom":
            self._input = ArgumentText(INPUT)
            return CustomToolCallItem(id=_new_id("ctc"), input="", **fields)
        return FunctionCallItem(id=_new_id("fc"), arguments="", **fields)

    def _argument_events(self, text: str) -> Iterator[StreamEvent]:
        match self._item:
            case CustomToolCallItem():
                if new_input := self._input.add_json(text):
                    yield self._delta_event("custom_tool_call_input", new_input)
            case ToolSearchCallItem():
                self._text.append(text)
            case _:
                yield self._delta_event("function_call_arguments", text)

    def _open_item(self, item: OutputItem) -> Iterator[StreamEvent]:
        yield from self._close("completed")
        self._item = item
        yield self._next_event(
            "response.output_item.added", output_index=len(self._response.output), item=item.model_copy()
        )

    def _close(self, status: ItemStatus) -> Iterator[StreamEvent]:
        item = self._item
        if item is None:
            return
        if isinstance(item, CustomToolCallItem) and (rest := self._input.read_rest()):
            yield self._delta_event("custom_tool_call_input", rest)
        text = "".join(self._text)
        match item:
            case MessageItem():
                output = OutputText.model_construct(text=text, logprobs=self._logprobs)
                logprobs = self._without_bytes
                yield self._of_item("output_text.done", text=text, content_index=0, logprobs=logprobs)
                yield self._part_event("done", output)
                item.content = [output]
            case ReasoningItem():
                thought = ReasoningText(text=text)
                yield self._of_item("reasoning_text.done", text=text, content_index=0)
                yield self._part_event("done", thought)
                item.content = [thought]
            case FunctionCallItem():
                item.arguments = text
                yield self._of_item("function_call_arguments.done", name=item.name, arguments=text)
            case CustomToolCallItem():
                item.input = text
                yield self._of_item("custom_tool_call_input.done", input=text)
            case ToolSearchCallItem():
                item.arguments = arguments_object(text)
        item.status = status
        yield self._next_event("response.output_item.done", output_index=len(self._response.output), item=item)
        self._response.output.append(item)
        self._item, self._text, self._logprobs, self._without_bytes = None, [], [], []

    def _delta_event(self, kind: str, text: str, **fields: Any) -> StreamEvent:
        self._text.append(text)
        return self._of_item(f"{kind}.delta", delta=text, **fields)

    def _part_event(self, what: str, part: OutputText | ReasoningText) -> StreamEvent:
        return self._of_item(f"content_part.{what}", content_index=0, part=part)

    def _of_item(self, type: str, **fields: Any) -> StreamEvent:
        assert self._item is not None
        place = len(self._response.output)
        return self._next_event(f"response.{type}", item_id=self._item.id, output_index=place, **fields)

    def _next_event(self, type: str, **fields: Any) -> StreamEvent:
        event = StreamEvent(type=type, sequence_number=self._sequence, **fields)
        self._sequence += 1
        return event

    def _copy_response(self) -> ResponseObject:
        return self._response.model_copy(update={"output": list(self._response.output)})


def _response_of_request(id: str, model: str, body: ResponsesRequest) -> ResponseObject:
    form = (
        {"type": "text"} if body.text.format is None else body.text.format.model_dump(by_alias=True, exclude_none=True)
    )
    return ResponseObject(
        id=id,
        created_at=created_time(),
        model=model,
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        max_tool_calls=body.max_tool_calls,
        metadata=body.metadata,
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning={"effort": body.reasoning.effort, "summary": body.reasoning.summary},
        temperature=body.temperature,
        text={"format": form} | body.text.model_dump(include={"verbosity"}, exclude_none=True),
        tool_choice=choice_object(body.tool_choice),
        tools=[tool_object(tool) for tool in body.tools if tool.served],
        top_p=body.top_p,
        top_logprobs=body.top_logprobs,
        user=body.user,
    )


def _error_code(status: int) -> ErrorCode:
    """Code of a status, from the few that OpenAI's type has."""
    if status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if status < 500 else "server_error"


def _without_bytes(logprobs: Sequence[ChatTokenLogprob]) -> list[dict[str, Any]]:
    """Write log probabilities as events of streams have them."""
    return [
        {
            "token": token["token"],
            "logprob": token["logprob"],
            "top_logprobs": [{"token": top["token"], "logprob": top["logprob"]} for top in token["top_logprobs"]],
        }
        for token in logprobs
    ]


def _response_usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=usage.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
    )


def _new_id(kind: str) -> str:
    return f"{kind}_{new_hex()}"
