"""From a request for a message to the body of a chat completion. Pure."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from paternoster_engine.server.messages.client_tools import CLIENT_TOOLS
from paternoster_engine.server.messages.requests import (
    SEARCH_TOOLS,
    ContentBlock,
    CountTokensRequest,
    DocumentSource,
    Message,
    MessagesRequest,
    MessagesTool,
    ResultBlock,
    TextBlock,
)
from paternoster_engine.server.openai.fields.body import ignored_value, report_ignored
from paternoster_engine.server.openai.messages import join_texts
from paternoster_engine.server.translation.chat import Chat
from paternoster_engine.server.translation.names import ClientNames
from paternoster_engine.server.translation.tools import Offer, OfferedTool, definitions_text

NAMES = ClientNames(
    {
        "stop": "stop_sequences",
        "user": "metadata.user_id",
        "response_format": "output_config.format",
        "json_schema": "",
        "reasoning_effort": "output_config.effort",
        "function": "",
        "parameters": "input_schema",
        "continue_final_message": "messages",
    }
)

CHOICES: Mapping[str, str] = {"auto": "auto", "any": "required", "none": "none"}
SOURCED = ("document", "search_result")
"""Types of blocks with a source."""
TEXTS = ("content", "reasoning_content")
"""Fields of a chat's message."""
FAILED = "Error: "
"""Before the result of a tool that failed: a template has no other place for it."""
BILLING = "x-anthropic-billing-header"
"""Claude Code's first system block: a header of its client, other in each request, with which no prefix is found."""
_BILLING_LINE = re.compile(rf"\s*{BILLING}:[^\n]*\n?")


def chat_of(body: MessagesRequest) -> Chat:
    """The chat that answers ``body``."""
    prompt = prompt_of(body)
    chat = {
        **prompt.body,
        "max_tokens": body.max_tokens,
        "stop": body.stop_sequences,
    }
    if body.metadata.user_id is not None:
        chat["user"] = body.metadata.user_id
    return Chat(chat, prompt.offer)


def prompt_of(body: CountTokensRequest) -> Chat:
    """So much of it as decides the prompt."""
    conversation = _Conversation(body)
    chat: dict[str, Any] = {"messages": conversation.list_messages(), **body.passed_on()}
    if body.messages[-1].role == "assistant":
        chat["continue_final_message"] = True
    offer = conversation.offer
    if offer.tools:
        chat["tools"] = offer.definitions
    choice = body.tool_choice
    # Without tools there is nothing to choose from.
    if offer.tools or choice.type not in ("auto", "none"):
        named = {"type": "function", "function": {"name": choice.name}}
        chat["tool_choice"] = named if choice.type == "tool" else CHOICES[choice.type]
        chat["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    efforts = [message.output_config.effort for message in body.messages if message.role == "system"]
    effort = next((effort for effort in reversed(efforts) if effort is not None), body.output_config.effort)
    if effort is not None:
        chat["reasoning_effort"] = effort
    if body.thinking is not None and body.thinking.type == "disabled":
        chat["reasoning_effort"] = "none"
    elif body.thinking is not None and body.thinking.type == "enabled":
        chat["chat_template_kwargs"] = {"enable_thinking": True} | chat.get("chat_template_kwargs", {})
        chat["thinking_token_budget"] = body.thinking.budget_tokens
    form = body.output_config.format or body.output_format
    if form is not None:
        chat["response_format"] = {"type": "json_schema", "json_schema": {"name": "output", "schema": form.schema_}}
    return Chat(chat, offer)


class _Conversation:
    """The messages of one request as a chat's, and the tools that they offer."""

    def __init__(self, body: CountTokensRequest) -> None:
        self._body = body
        self.offer = Offer()
        self._deferred: dict[str, OfferedTool] = {}
        """Tools that are offered once the conversation refers to them."""
        # The server's search does not run here and would find no tool: all are offered then.
        searched = any(tool.type.startswith(SEARCH_TOOLS) for tool in body.tools)
        for index, tool in enumerate(body.tools):
            if tool.served:
                offered = OfferedTool(_chat_function(tool), f"tools.{index}")
                if tool.defer_loading and not searched:
                    self._deferred[offered.chat_name] = offered
                else:
                    self.offer.add(offered)

    def list_messages(self) -> list[dict[str, Any]]:
        """Neighbouring messages of one role are one turn, as Anthropic has it: many templates refuse two in a row.

        A system message between calls and their results comes after these.
        """
        messages: list[dict[str, Any]] = []
        system = _system_texts(self._body.system)
        if system:
            _add_message(messages, {"role": "system", "content": join_texts(system)})
        held: list[Message] = []
        calling = False
        last_of_user = max(
            (index for index, message in enumerate(self._body.messages) if message.role == "user"), default=0
        )
        for index, message in enumerate(self._body.messages):
            if message.role == "system":
                if message.clear_at == "never" or index > last_of_user:
                    held.append(message)
                if not calling:
                    self._add_system(messages, held)
                continue
            if message.role == "assistant":
                self._add_system(messages, held)
            for one in [_of_assistant(message)] if message.role == "assistant" else self._of_user(message):
                _add_message(messages, one)
            if message.role == "user":
                self._add_system(messages, held)
            calling = any(block.type == "tool_use" for block in message.content)
        self._add_system(messages, held)
        for one in messages:
            one |= {field: join_texts(one[field]) for field in TEXTS if field in one}
        return messages

    def _add_system(self, messages: list[dict[str, Any]], held: list[Message]) -> None:
        for message in held:
            texts = _system_texts(block for block in message.content if block.type == "text")
            added = []
            for block in message.content:
                name = block.tool.name if block.tool is not None else ""
                if block.type == "tool_removal":
                    self.offer.remove(name)
                elif block.type == "tool_addition" and name in self._deferred:
                    added.append(self._deferred.pop(name))
            texts += self._offer_later(added)
            if texts:
                _add_message(messages, {"role": "system", "content": join_texts(texts)})
        held.clear()

    def _offer_later(self, tools: Sequence[OfferedTool]) -> list[str]:
        """Texts that show them."""
        for tool in tools:
            self.offer.add(tool, later=True)
        return [definitions_text(tools)] if tools else []

    def _of_user(self, message: Message) -> Iterator[dict[str, Any]]:
        """The results of tools come first, each a message."""
        for block in message.content:
            if block.type == "tool_result":
                yield {
                    "role": "tool",
                    "tool_call_id": block.tool_use_id,
                    "content": join_texts(self._tool_result_texts(block)),
                }
        texts = [_block_text(block) for block in message.content if block.type in ("text", *SOURCED)]
        if texts:
            yield {"role": "user", "content": join_texts(texts)}

    def _tool_result_texts(self, result: ContentBlock) -> list[str]:
        texts: list[str] = []
        found: list[OfferedTool] = []
        for block in result.content:
            if block.type == "tool_reference":
                name = block.tool_name or ""
                if name in self._deferred:
                    found.append(self._deferred.pop(name))
                else:
                    texts.append(f"The tool {name} can be called.")
            else:
                texts.append(_block_text(block))
        texts += self._offer_later(found)
        if result.is_error:
            texts = [FAILED + (texts[0] if texts else ""), *texts[1:]]
        return texts


def _add_message(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """To the last one, where that has the same role. Its texts are lists, to be joined once at the end."""
    last = messages[-1] if messages else None
    if last is None or not last["role"] == message["role"] != "tool":
        last = {"role": message["role"]}
        messages.append(last)
    for field, value in message.items():
        if field in TEXTS:
            last.setdefault(field, []).append(value)
        elif field == "tool_calls":
            last.setdefault(field, []).extend(value)
        else:
            last[field] = value


def _system_texts(blocks: Iterable[ContentBlock | TextBlock]) -> list[str]:
    """Texts of system blocks, without Claude Code's billing header."""
    texts: list[str] = []
    for block in blocks:
        text = block.text or ""
        found = _BILLING_LINE.match(text)
        if found is not None:
            report_ignored(ignored_value("system[]", BILLING))
            text = text[found.end() :]
        if text:
            texts.append(text)
    return texts


def _of_assistant(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "role": "assistant",
        "content": join_texts(block.text or "" for block in message.content if block.type == "text"),
    }
    thought = join_texts(block.thinking or "" for block in message.content)
    if thought:
        fields["reasoning_content"] = thought
    calls = [_chat_call(block) for block in message.content if block.type == "tool_use"]
    if calls:
        fields["tool_calls"] = calls
    return fields


def _chat_call(block: ContentBlock) -> dict[str, Any]:
    arguments = json.dumps(block.input, ensure_ascii=False)
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}


def _block_text(block: ContentBlock | ResultBlock) -> str:
    """Text of a block; title and source of a document or a search's result come first, each on a line."""
    source = block.source
    if isinstance(source, DocumentSource):
        return join_texts([block.title or "", block.context or "", source.data or "", *_block_texts(source.content)])
    if source is not None:
        return join_texts([block.title or "", source, *_block_texts(block.content)])
    return block.text or ""


def _block_texts(blocks: Iterable[TextBlock | ResultBlock]) -> Iterator[str]:
    return (block.text or "" for block in blocks)


def _chat_function(tool: MessagesTool) -> dict[str, Any]:
    client_tool = CLIENT_TOOLS.get(tool.type)
    given = {
        "name": tool.name or (client_tool and client_tool.name),
        "description": client_tool.description if client_tool else tool.description,
        "parameters": client_tool.input_schema if client_tool else tool.input_schema,
        "strict": tool.strict,
    }
    return {name: value for name, value in given.items() if value is not None}
