"""A request's text in the order of its prompt, from the JSON of its body alone. Pure, and tolerant: nothing raises.

The same conversation gets the same text whichever of the three chat APIs it comes by, as far as that is cheap. Where
two shapes of one conversation give different texts, a cached prefix is not found by its text; it is still used.
"""

import contextlib
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

SEPARATOR = "\0"
"""Begins and ends a part that is no text of the client, such as a role."""
ASSISTANT = "assistant"
SYSTEM_ROLES = ("system", "developer")
CHATS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
COMPLETIONS = "/v1/completions"
SETTINGS = ("tools", "functions", "documents", "chat_template_kwargs", "reasoning_effort", "reasoning", "thinking")
"""Fields by which chat templates show something besides messages, anywhere in the prompt: all pieces depend on them."""


@dataclass(frozen=True, slots=True)
class CanonicalText:
    """The text of one prompt."""

    parts: Sequence[str]
    """Texts of the client and marks, in order; a mark begins with :data:`SEPARATOR`."""
    settings: bytes = b""
    """JSON of :data:`SETTINGS`; empty where the body has none of them."""
    head: int = 0
    """How many leading ``parts`` are instructions, which many conversations share: a piece ends behind them."""
    token_ids: Sequence[int] | None = None
    """The prompt, where it came as token ids; ``parts`` is empty then."""

    def encode(self) -> bytes:
        """What is hashed: UTF-8, or token ids of four bytes each."""
        if self.token_ids is not None:
            return array("I", self.token_ids).tobytes()
        return encode_parts(self.parts)

    @property
    def num_bytes(self) -> int:
        """Length of :meth:`encode`'s bytes."""
        if self.token_ids is not None:
            return 4 * len(self.token_ids)
        return sum(len(part) if part.isascii() else len(encode_parts((part,))) for part in self.parts)

    @property
    def head_bytes(self) -> int | None:
        """Where the piece ends that is behind instructions and settings; None where there are neither."""
        return len(encode_parts(self.parts[: self.head])) if self.head or self.settings else None

    @property
    def continues_answer(self) -> bool:
        """Whether the text ends inside a message of the assistant's, or has no messages."""
        roles = [part for part in self.parts if part in _ROLES]
        return not roles or roles[-1] == write_mark(ASSISTANT)


def encode_parts(parts: Sequence[str]) -> bytes:
    return "".join(parts).encode("utf-8", "surrogatepass")


def write_mark(name: str) -> str:
    return f"{SEPARATOR}{name}{SEPARATOR}"


_ROLES = frozenset(map(write_mark, ("system", "developer", "user", ASSISTANT, "tool")))


def canonical_text(path: str, body: Any) -> CanonicalText | None:
    """The text of the first prompt of ``body``, parsed JSON; None where ``path`` has no prompts, or nothing is there.

    ``path``: as in :data:`paternoster_contract.http.routes.ROUTES`.
    """
    if not isinstance(body, dict):
        return None
    if path == COMPLETIONS:
        return _read_completion(body.get("prompt"))
    if path not in CHATS:
        return None
    parts = list(_write_conversation(path, body))
    head = _count_head(parts)
    return CanonicalText(parts, _write_settings(body), head) if parts else None


def cache_salt_of(body: Any) -> str:
    """The salt that parts the caches of one tenant's clients; empty where there is none."""
    salt = body.get("cache_salt") if isinstance(body, dict) else None
    return salt if isinstance(salt, str) else ""


def answer_parts(
    text: CanonicalText, content: str, reasoning: str = "", calls: Sequence[tuple[str, str]] = ()
) -> list[str]:
    """What the next turn appends to ``text`` for an answer to it; ``calls``: name and arguments as text of each."""
    role = [] if text.continues_answer else [write_mark(ASSISTANT)]
    return [*role, *_write_thought(reasoning), *([content] if content else []), *_write_calls(calls)]


def _read_completion(prompt: Any) -> CanonicalText | None:
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return CanonicalText([prompt]) if prompt else None
    if isinstance(prompt, list) and prompt and all(type(token) is int and 0 <= token < 2**32 for token in prompt):
        return CanonicalText((), token_ids=prompt)
    return None


def _write_settings(body: Mapping[str, Any]) -> bytes:
    settings = {name: body[name] for name in SETTINGS if body.get(name)}
    choice = body.get("tool_choice")
    if (choice.get("type") if isinstance(choice, dict) else choice) == "none":
        settings.pop("tools", None)
    return _write_json(settings) if settings else b""


def _write_json(value: Any) -> bytes:
    try:
        return to_json(value)
    except ValueError:
        # Half a surrogate pair, or too deep: no engine takes it.
        return b""


def _write_conversation(path: str, body: Mapping[str, Any]) -> Iterator[str]:
    for name in ("system",) if path == "/v1/messages" else ("instructions",) if path == "/v1/responses" else ():
        text = _join_text(body.get(name))
        if text:
            yield write_mark("system")
            yield text
    items = body.get("input" if path == "/v1/responses" else "messages")
    if isinstance(items, str):
        yield write_mark("user")
        yield items
        return
    last = ""
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, dict):
            continue
        for role, parts in _plain_turn(item) or _split_turns(item):
            if role != ASSISTANT or last != ASSISTANT:
                yield write_mark(role)
            last = role
            yield from parts


def _plain_turn(item: Mapping[str, Any]) -> tuple[tuple[str, Sequence[str]]] | None:
    """Read a message of a role and a text alone, as most are, as :func:`_turns` would in three times the time."""
    role, content = item.get("role"), item.get("content")
    if len(item) == 2 and isinstance(role, str) and isinstance(content, str):
        return ((role, [content] if content else []),)
    return None


def _split_turns(item: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[str]]]:
    """The roles and parts of one message, or of one item of Responses."""
    kind, role, content = item.get("type"), item.get("role"), item.get("content")
    if isinstance(role, str):
        blocks = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        for block in blocks:
            if block.get("type") == "tool_result":
                yield "tool", _list_texts(block.get("content"))
        if role == ASSISTANT:
            yield role, list(_of_assistant(item, content, blocks))
            return
        texts = _list_texts(content)
        if texts or not blocks:
            name = item.get("name") if role != "tool" else None
            yield role, [*([write_mark("name"), name] if isinstance(name, str) else []), *texts]
        return
    if kind == "reasoning":
        yield ASSISTANT, _write_thought(_join_text(content) or _join_text(item.get("summary")))
    elif isinstance(kind, str) and kind.endswith("_output"):
        yield "tool", _list_texts(item.get("output"))
    elif isinstance(kind, str) and kind.endswith("_call"):
        arguments = next((item[name] for name in ("arguments", "input", "action") if name in item), "")
        yield ASSISTANT, _write_calls([(item.get("name", kind), arguments)])


def _of_assistant(message: Mapping[str, Any], content: Any, blocks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    thought = message.get("reasoning_content") or message.get("reasoning")
    thoughts = [thought] if thought else [block["thinking"] for block in blocks if "thinking" in block]
    yield from _write_thought("\n".join(filter(None, map(_join_text, thoughts))))
    yield from _list_texts(content)
    for block in blocks:
        if block.get("type") == "tool_use":
            yield from _write_calls([(block.get("name"), block.get("input"))])
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield from _write_calls([(function.get("name"), function.get("arguments"))])


def _write_thought(text: str) -> list[str]:
    return [write_mark("thought"), text] if text else []


def _write_calls(calls: Sequence[tuple[Any, Any]]) -> list[str]:
    """Arguments in one spelling, as clients send them parsed and not."""
    parts: list[str] = []
    for name, arguments in calls:
        if isinstance(arguments, str) and arguments:
            with contextlib.suppress(ValueError, RecursionError):
                arguments = json.loads(arguments)
        spelled = _write_json({} if arguments in ("", None) else arguments).decode()
        parts += [write_mark("call"), name if isinstance(name, str) else "", write_mark("arguments"), spelled]
    return parts


def _list_texts(content: Any) -> list[str]:
    text = _join_text(content)
    return [text] if text else []


def _join_text(content: Any) -> str:
    """The text of a message's content: a text, or the texts of its parts, which a newline joins."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, str | dict))
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def _count_head(parts: Sequence[str]) -> int:
    heads = tuple(map(write_mark, SYSTEM_ROLES))
    for index, part in enumerate(parts):
        if part in _ROLES and part not in heads:
            return index
    return len(parts)
