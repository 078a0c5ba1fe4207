"""From a request for a message to the body of a chat completion. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from paternoster_engine.server.messages.requests import (
    ContentBlock,
    CountTokensRequest,
    CustomTool,
    Message,
    MessagesRequest,
    TextBlock,
)
from paternoster_engine.server.openai.messages import join_texts

NAMES: Mapping[str, str] = {
    "stop": "stop_sequences",
    "user": "metadata.user_id",
    "response_format": "output_config.format",
    "json_schema": "",
    "reasoning_effort": "output_config.effort",
    "function": "",
    "parameters": "input_schema",
    "continue_final_message": "messages",
}
"""What fields of the chat body are called here; empty: a level that is not there."""

EFFORTS: Mapping[str, str] = {"max": "xhigh"}
"""Where the two APIs have different words."""
CHOICES: Mapping[str, str] = {"auto": "auto", "any": "required", "none": "none"}
FAILED = "Error: "
"""Before the result of a tool that failed: a template has no other place for it."""


def chat_body(body: MessagesRequest) -> dict[str, Any]:
    """The body of the chat completion that answers ``body``."""
    chat = prompt_body(body) | {
        "max_tokens": body.max_tokens,
        "stop": body.stop_sequences,
    }
    if body.metadata.user_id is not None:
        chat["user"] = body.metadata.user_id
    return chat


def prompt_body(body: CountTokensRequest) -> dict[str, Any]:
    """So much of it as decides the prompt."""
    chat: dict[str, Any] = {"messages": _messages(body), **body.passed_on()}
    if body.messages[-1].role == "assistant":
        chat["continue_final_message"] = True
    if body.tools:
        chat["tools"] = [{"type": "function", "function": _function(tool)} for tool in body.tools]
    choice = body.tool_choice
    # Without tools there is nothing to choose from.
    if body.tools or choice.type not in ("auto", "none"):
        named = {"type": "function", "function": {"name": choice.name}}
        chat["tool_choice"] = named if choice.type == "tool" else CHOICES[choice.type]
        chat["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    if body.output_config.effort is not None:
        chat["reasoning_effort"] = EFFORTS.get(body.output_config.effort, body.output_config.effort)
    if body.thinking is not None and body.thinking.type == "disabled":
        chat["reasoning_effort"] = "none"
    elif body.thinking is not None and body.thinking.type == "enabled":
        chat["chat_template_kwargs"] = {"enable_thinking": True} | chat.get("chat_template_kwargs", {})
        chat["thinking_token_budget"] = body.thinking.budget_tokens
    form = body.output_config.format or body.output_format
    if form is not None:
        chat["response_format"] = {"type": "json_schema", "json_schema": {"name": "output", "schema": form.schema_}}
    return chat


def _messages(body: CountTokensRequest) -> list[dict[str, Any]]:
    """Neighbouring messages of one role are one turn, as Anthropic has it: many templates refuse two in a row."""
    messages: list[dict[str, Any]] = []
    if body.system:
        messages.append({"role": "system", "content": _text(body.system)})
    for message in body.messages:
        told = [_of_assistant(message)] if message.role == "assistant" else _of_user(message)
        for one in told:
            last = messages[-1] if messages else None
            if last is not None and last["role"] == one["role"] != "tool":
                _join(last, one)
            else:
                messages.append(one)
    return messages


def _join(message: dict[str, Any], later: dict[str, Any]) -> None:
    for field in ("content", "reasoning_content"):
        if field in later:
            message[field] = join_texts([message.get(field, ""), later[field]])
    if "tool_calls" in later:
        message["tool_calls"] = message.get("tool_calls", []) + later["tool_calls"]


def _of_user(message: Message) -> Iterable[dict[str, Any]]:
    """The results of tools come first, each a message."""
    for block in message.content:
        if block.type == "tool_result":
            text = (FAILED if block.is_error else "") + _text(block.content)
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": text}
    texts = [block for block in message.content if block.type == "text"]
    if texts:
        yield {"role": message.role, "content": _text(texts)}


def _of_assistant(message: Message) -> dict[str, Any]:
    told: dict[str, Any] = {
        "role": "assistant",
        "content": _text(block for block in message.content if block.type == "text"),
    }
    thought = join_texts(block.thinking or "" for block in message.content)
    if thought:
        told["reasoning_content"] = thought
    calls = [_call(block) for block in message.content if block.type == "tool_use"]
    if calls:
        told["tool_calls"] = calls
    return told


def _call(block: ContentBlock) -> dict[str, Any]:
    arguments = json.dumps(block.input, ensure_ascii=False)
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}


def _text(blocks: Iterable[ContentBlock | TextBlock]) -> str:
    return join_texts(block.text or "" for block in blocks)


def _function(tool: CustomTool) -> dict[str, Any]:
    given = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "strict": tool.strict,
    }
    return {name: value for name, value in given.items() if value is not None}
