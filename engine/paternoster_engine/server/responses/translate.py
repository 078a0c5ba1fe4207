"""From a request for a response to the body of a chat completion. Pure."""

from typing import Any

from paternoster_engine.server.responses.conversation import Conversation
from paternoster_engine.server.responses.offered import chat_name
from paternoster_engine.server.responses.requests import ResponsesRequest, ResponseTextFormat
from paternoster_engine.server.responses.tools import AllowedTools, ChosenTool
from paternoster_engine.server.translation.chat import Chat
from paternoster_engine.server.translation.names import ClientNames

NAMES = ClientNames(
    {
        "messages": "input",
        "max_tokens": "max_output_tokens",
        "response_format": "text.format",
        "json_schema": "",
        "reasoning_effort": "reasoning.effort",
        "function": "",
    }
)


def chat_of(body: ResponsesRequest) -> Chat:
    """The chat that answers ``body``."""
    conversation = Conversation(body)
    chat: dict[str, Any] = {
        "messages": conversation.list_messages(),
        "stop": body.stop,
        "parallel_tool_calls": body.parallel_tool_calls,
        **body.passed_on(),
    }
    offer = conversation.offer
    choice = body.tool_choice
    if isinstance(choice, AllowedTools):
        allowed = {chat_name(tool.name, tool.namespace) for tool in choice.tools}
        for name in offer.tools.keys() - allowed:
            offer.remove(name)
        choice = choice.mode
    if offer.tools:
        chat["tools"] = offer.definitions
    # Without tools there is nothing to choose from, and every client sends a choice.
    if offer.tools or choice not in ("auto", "none"):
        chat["tool_choice"] = _chat_tool_choice(choice)
    if body.max_output_tokens is not None:
        chat["max_tokens"] = body.max_output_tokens
    if body.logprobs:
        chat |= {"logprobs": True, "top_logprobs": body.top_logprobs}
    if body.user is not None:
        chat["user"] = body.user
    if body.reasoning.effort is not None:
        chat["reasoning_effort"] = body.reasoning.effort
    if body.text.format is not None and body.text.format.type != "text":
        chat["response_format"] = _chat_response_format(body.text.format)
    return Chat(chat, offer)


def _chat_tool_choice(choice: str | ChosenTool) -> str | dict[str, Any]:
    if isinstance(choice, ChosenTool):
        return {"type": "function", "function": {"name": chat_name(choice.name, choice.namespace)}}
    return choice


def _chat_response_format(form: ResponseTextFormat) -> dict[str, Any]:
    if form.type == "json_object":
        return {"type": "json_object"}
    given = {"name": form.name, "schema": form.schema_, "strict": form.strict, "description": form.description}
    return {"type": "json_schema", "json_schema": {name: value for name, value in given.items() if value is not None}}
