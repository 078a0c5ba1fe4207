"""What an answer consists of, as fields of messages and of a stream's deltas."""

from collections.abc import Callable, Iterable

from paternoster_engine.server.openai.objects import (
    AssistantMessage,
    Delta,
    DeltaFunction,
    DeltaToolCall,
    FunctionCall,
    MessageToolCall,
)
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Calls, Content, Event, JoinedTexts, Reasoning


class ChoiceEvents:
    """One choice: whole at once, or delta by delta."""

    def __init__(
        self, new_id: Callable[[], str], *, parallel: bool = True, reasoning: bool = True, before: str = ""
    ) -> None:
        """``new_id``: makes ids of calls. ``parallel``: pass on more than one call. ``reasoning``: pass it on.

        ``before``: what a whole message's content begins with.
        """
        self._new_id = new_id
        self._calls = Calls(parallel=parallel)
        self._reasoning = reasoning
        self._before = before
        self.num_calls = 0
        self._content, self._thoughts = JoinedTexts(), JoinedTexts()

    def write_delta(self, events: Iterable[Event]) -> Delta:
        """Calls have their index in the answer; id and name come with the first piece of each."""
        content, reasoning = "", ""
        calls: list[DeltaToolCall] = []
        for event in self._calls.filter_events(events):
            if not isinstance(event, Content):
                self._content.start_line()
            if not isinstance(event, Reasoning):
                self._thoughts.start_line()
            match event:
                case Content(text):
                    content += self._content.join_next(text)
                case Reasoning(text):
                    reasoning += self._thoughts.join_next(text)
                case CallBegin(name):
                    self.num_calls += 1
                    function = DeltaFunction(name=name, arguments="")
                    calls.append(
                        DeltaToolCall(index=self.num_calls - 1, id=self._new_id(), type="function", function=function)
                    )
                case Arguments(text):
                    if not calls:
                        calls.append(DeltaToolCall(index=self.num_calls - 1, function=DeltaFunction(arguments="")))
                    calls[-1].function.arguments += text
        delta = Delta()
        if reasoning and self._reasoning:
            delta.reasoning_content = delta.reasoning = reasoning
        if content:
            delta.content = content
        if calls:
            delta.tool_calls = calls
        return delta

    def write_message(self, events: Iterable[Event]) -> AssistantMessage:
        """Content is null where there is none beside reasoning or calls."""
        delta = self.write_delta(events)
        found = delta.model_fields_set
        message = AssistantMessage(role="assistant", content=delta.content if found else "")
        if self._before:
            message.content = self._before + (message.content or "")
        if "reasoning" in found:
            message.reasoning_content = message.reasoning = delta.reasoning
        if delta.tool_calls:
            message.tool_calls = [
                MessageToolCall(
                    id=call.id or "",
                    type="function",
                    function=FunctionCall(name=call.function.name or "", arguments=call.function.arguments),
                )
                for call in delta.tool_calls
            ]
        return message
