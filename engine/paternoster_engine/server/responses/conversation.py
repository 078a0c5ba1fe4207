"""The items of a request for a response as messages of a chat, and the tools that they offer. Pure."""

import json
from collections.abc import Iterable
from typing import Any

from paternoster_engine.server.openai.messages import join_texts
from paternoster_engine.server.responses.items import InputItem, InputPart
from paternoster_engine.server.responses.offered import INPUT, chat_name, list_offered_tools
from paternoster_engine.server.responses.requests import ResponsesRequest
from paternoster_engine.server.responses.tools import ResponseToolOrNamespace
from paternoster_engine.server.translation.tools import Offer, OfferedTool, definitions_text

_INSTRUCTING = ("system", "developer")
_TEXTS = ("content", "reasoning_content")
"""Fields of a message; lists of texts while items are added, so that each is copied once."""
_CALL, _OUTPUT = "_call", "_output"
"""How types of items end."""


class Conversation:
    """The conversation of one request."""

    def __init__(self, body: ResponsesRequest) -> None:
        self._body = body
        self._messages: list[dict[str, Any]] = []
        self.offer = Offer()
        # The server's search does not run here and would find no tool: all are offered then.
        self._searched = any(tool.searched_by_server for tool in body.tools)
        for tool, waits in list_offered_tools(body.tools, "tools"):
            if self._searched or not waits:
                self.offer.add(tool)

    def list_messages(self) -> list[dict[str, Any]]:
        """Neighbouring items of the assistant's are one message, and so are neighbouring instructions."""
        if self._body.instructions is not None:
            self._messages.append({"role": "system", "content": [self._body.instructions]})
        for index, item in enumerate(self._body.input):
            self._add(item, f"input.{index}")
        for message in self._messages:
            # Other texts than those of one message: a line stands between them.
            join = "\n\n".join if message["role"] in _INSTRUCTING else join_texts
            message |= {field: join(message[field]) for field in _TEXTS if field in message}
        return self._messages

    def _add(self, item: InputItem, place: str) -> None:
        if not item.served:
            return
        match item.type:
            case "message" if item.role == "assistant":
                self._assistant_message()["content"] += _part_texts(item.content)
            case "message":
                self._add_message(item.role or "user", _part_texts(item.content))
            case "agent_message":
                author = [f"Message of {item.author}:"] if item.author else []
                self._add_message("user", [*author, *_part_texts(item.content)])
            case "reasoning":
                self._assistant_message().setdefault("reasoning_content", []).extend(
                    _part_texts(item.content or item.summary)
                )
            case "additional_tools":
                shown = self._offer_tools(item.tools or [], place, later=self._has_begun)
                if shown:
                    self._add_message("system", [definitions_text(shown)])
            case "tool_search_output":
                shown = self._offer_tools(item.tools or [], place, later=True)
                self._add_result(item.call_id, [definitions_text(shown)] if shown else ["No tool was found."])
            case "mcp_call":
                self._add_call(item.id, item.name or "", str(item.arguments))
                self._add_result(
                    item.id, _part_texts(item.output or []) or [json.dumps(item.error, ensure_ascii=False)]
                )
            case _ if item.type.endswith(_OUTPUT):
                self._add_result(item.call_id or item.id, _part_texts(item.output or []))
            case _:
                self._add_call(item.call_id, *_chat_call(item))

    @property
    def _has_begun(self) -> bool:
        """Whether more than instructions came already."""
        return any(message["role"] not in _INSTRUCTING for message in self._messages)

    def _offer_tools(self, tools: list[ResponseToolOrNamespace], place: str, *, later: bool) -> list[OfferedTool]:
        """Offer the tools that the conversation has to show."""
        # What was found by a search is not deferred any more.
        found = [tool for tool, _ in list_offered_tools(tools, f"{place}.tools")]
        for tool in found:
            self.offer.add(tool, later=later)
        return found if later else []

    def _assistant_message(self) -> dict[str, Any]:
        """The message of the assistant's that the next item is a part of."""
        if not self._messages or self._messages[-1]["role"] != "assistant":
            self._messages.append({"role": "assistant", "content": []})
        return self._messages[-1]

    def _add_message(self, role: str, texts: list[str]) -> None:
        last = self._messages[-1] if self._messages else None
        if last is not None and role in _INSTRUCTING and last["role"] in _INSTRUCTING:
            last["content"].append(join_texts(texts))
        else:
            self._messages.append({"role": role, "content": [join_texts(texts)]})

    def _add_call(self, call_id: str | None, name: str, arguments: str) -> None:
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        self._assistant_message().setdefault("tool_calls", []).append(call)

    def _add_result(self, call_id: str | None, texts: list[str]) -> None:
        self._messages.append({"role": "tool", "tool_call_id": call_id, "content": texts})


def _chat_call(item: InputItem) -> tuple[str, str]:
    """Which function of the chat a call was of, and its arguments; tools of the API have the names of their types."""
    if item.type == "function_call":
        return chat_name(item.name or "", item.namespace), str(item.arguments)
    if item.type == "custom_tool_call":
        return chat_name(item.name or "", item.namespace), json.dumps({INPUT: item.input}, ensure_ascii=False)
    given = item.arguments or item.action or item.operation or {}
    return item.type.removesuffix(_CALL), json.dumps(given, ensure_ascii=False)


def _part_texts(parts: Iterable[InputPart]) -> list[str]:
    return [part.visible_text for part in parts]
