"""From a request for a response to the body of a chat completion. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from paternoster_engine.server.openai.messages import join_texts
from paternoster_engine.server.responses.requests import (
    InputItem,
    InputPart,
    NamedFunction,
    ResponsesRequest,
    ResponseTextFormat,
)

NAMES: Mapping[str, str] = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "json_schema": "",
    "reasoning_effort": "reasoning.effort",
    "function": "",
}
"""What fields of the chat body are called here; empty: a level that is not there."""

_INSTRUCTING = ("system", "developer")


def chat_body(body: ResponsesRequest) -> dict[str, Any]:
    """The body of the chat completion that answers ``body``."""
    chat: dict[str, Any] = {
        "messages": _messages(body),
        "stop": body.stop,
        "parallel_tool_calls": body.parallel_tool_calls,
        **body.passed_on(),
    }
    if body.tools:
        chat["tools"] = [{"type": "function", "function": _function(tool)} for tool in body.tools]
    # Without tools there is nothing to choose from, and every client sends a choice.
    if body.tools or body.tool_choice not in ("auto", "none"):
        chat["tool_choice"] = _choice(body.tool_choice)
    if body.max_output_tokens is not None:
        chat["max_tokens"] = body.max_output_tokens
    if body.logprobs:
        chat |= {"logprobs": True, "top_logprobs": body.top_logprobs}
    if body.user is not None:
        chat["user"] = body.user
    if body.reasoning.effort is not None:
        chat["reasoning_effort"] = body.reasoning.effort
    if body.text.format is not None and body.text.format.type != "text":
        chat["response_format"] = _format(body.text.format)
    return chat


def _messages(body: ResponsesRequest) -> list[dict[str, Any]]:
    """Neighbouring items of the assistant's are one message, and instructions with those that follow another one."""
    messages: list[dict[str, Any]] = []
    if body.instructions is not None:
        messages.append({"role": "system", "content": body.instructions})
    for item in body.input:
        if item.type == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output or [])})
        elif item.role == "assistant" or item.type != "message":
            _add_to_assistant(messages, item)
        elif messages and item.role in _INSTRUCTING and messages[-1]["role"] in _INSTRUCTING:
            messages[-1]["content"] += "\n\n" + _text(item.content)
        else:
            messages.append({"role": item.role, "content": _text(item.content)})
    return messages


def _add_to_assistant(messages: list[dict[str, Any]], item: InputItem) -> None:
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    message = messages[-1]
    if item.type == "message":
        message["content"] = join_texts([message["content"], _text(item.content)])
    elif item.type == "reasoning":
        thought = _text(item.content or item.summary)
        message["reasoning_content"] = join_texts([message.get("reasoning_content", ""), thought])
    else:
        call = {"name": item.name, "arguments": item.arguments}
        message.setdefault("tool_calls", []).append({"id": item.call_id, "type": "function", "function": call})


def _text(parts: Iterable[InputPart]) -> str:
    return join_texts(part.said for part in parts)


def _function(tool: Any) -> dict[str, Any]:
    given = {name: getattr(tool, name) for name in ("name", "description", "parameters", "strict")}
    return {name: value for name, value in given.items() if value is not None}


def _choice(choice: str | NamedFunction) -> str | dict[str, Any]:
    if isinstance(choice, NamedFunction):
        return {"type": "function", "function": {"name": choice.name}}
    return choice


def _format(form: ResponseTextFormat) -> dict[str, Any]:
    if form.type == "json_object":
        return {"type": "json_object"}
    given = {"name": form.name, "schema": form.schema_, "strict": form.strict, "description": form.description}
    return {"type": "json_schema", "json_schema": {name: value for name, value in given.items() if value is not None}}
