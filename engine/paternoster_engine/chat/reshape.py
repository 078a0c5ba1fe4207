"""Bring a conversation into another form with the same meaning, for chat templates that drop or refuse the usual one.

A step is a name with the indices of the messages that it changes, so steps that were found for the skeleton of a
conversation apply to the conversation itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

Conversation = list[dict[str, Any]]
Step = tuple[str, Sequence[int]]
INSTRUCTING = ("system", "developer")
_BLANK_LINE = "\n\n"


def reshape_messages(messages: Conversation, steps: Sequence[Step]) -> Conversation:
    """Apply ``steps`` to ``messages``, one after another."""
    for name, indices in steps:
        messages = STEPS[name](messages, frozenset(indices))
    return messages


def _as_system(messages: Conversation, indices: frozenset[int]) -> Conversation:
    return [message | {"role": "system"} if i in indices else message for i, message in enumerate(messages)]


def _as_parts(messages: Conversation, indices: frozenset[int]) -> Conversation:
    """Turn content into a list of one text part, as templates of multimodal models expect it."""
    return [
        message | {"content": _text_parts(_content_text(message["content"]))} if i in indices else message
        for i, message in enumerate(messages)
    ]


def _without_content(messages: Conversation, indices: frozenset[int]) -> Conversation:
    """Set the content beside calls to None instead of an empty string."""
    return [message | {"content": None} if i in indices else message for i, message in enumerate(messages)]


def _split_calls_from_text(messages: Conversation, indices: frozenset[int], content: str | None = "") -> Conversation:
    made: Conversation = []
    for i, message in enumerate(messages):
        if i in indices:
            made.append({name: value for name, value in message.items() if name != "tool_calls"})
            made.append({"role": message["role"], "content": content, "tool_calls": message["tool_calls"]})
        else:
            made.append(message)
    return made


def _split_calls_without_content(messages: Conversation, indices: frozenset[int]) -> Conversation:
    return _split_calls_from_text(messages, indices, None)


def _gather_texts(messages: Conversation, _: frozenset[int]) -> Conversation:
    """Move texts beside calls into the answer that ends the assistant's turn, or before its calls if there is none."""
    made: Conversation = []
    for of_turn, run in groupby(messages, lambda message: message["role"] in ("assistant", "tool")):
        turn = list(run)
        texts = [message["content"] for message in turn if message.get("tool_calls") and message["content"]]
        if not of_turn or not texts:
            made += turn
            continue
        calls = [message | {"content": ""} if message.get("tool_calls") else message for message in turn]
        last = calls[-1]
        if last["role"] == "assistant" and not last.get("tool_calls"):
            made += [*calls[:-1], last | {"content": _join_contents([*texts, last["content"]], _BLANK_LINE)}]
        else:
            made += [{"role": "assistant", "content": _join_contents(texts, _BLANK_LINE)}, *calls]
    return made


def _one_call_a_message(messages: Conversation, indices: frozenset[int]) -> Conversation:
    """Give each call a message of its own, followed by its result."""
    made: Conversation = []
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if place - 1 not in indices:
            made.append(message)
            continue
        results = []
        while place < len(messages) and messages[place]["role"] == "tool":
            results.append(messages[place])
            place += 1
        for number, call in enumerate(message["tool_calls"]):
            made.append(
                message | {"tool_calls": [call]}
                if number == 0
                else {"role": message["role"], "content": "", "tool_calls": [call]}
            )
            made += [result for result in results if result.get("tool_call_id") == call["id"]]
        of_calls = {call["id"] for call in message["tool_calls"]}
        made += [result for result in results if result.get("tool_call_id") not in of_calls]
    return made


def _merge_instructions(messages: Conversation, _: frozenset[int]) -> Conversation:
    """Join all instructions into one message at the front."""
    first = next(message for message in messages if message["role"] in INSTRUCTING)
    others = [message for message in messages if message["role"] not in INSTRUCTING]
    return [first | {"content": _join_contents(_instruction_contents(messages), _BLANK_LINE)}, *others]


def _fold_instructions(messages: Conversation, _: frozenset[int]) -> Conversation:
    """Move all instructions into the first message of the user."""
    others = [message for message in messages if message["role"] not in INSTRUCTING]
    place = next(i for i, message in enumerate(others) if message["role"] == "user")
    contents = [*_instruction_contents(messages), others[place]["content"]]
    others[place] = others[place] | {"content": _join_contents(contents, _BLANK_LINE)}
    return others


def _join_neighbours(messages: Conversation, _: frozenset[int]) -> Conversation:
    """Join neighbouring messages of the user, and neighbouring ones of the assistant without calls."""
    made: Conversation = []
    for message in messages:
        last = made[-1] if made else None
        if last is not None and _may_join(last, message):
            made[-1] = last | {"content": _join_contents([last["content"], message["content"]], _BLANK_LINE)}
        else:
            made.append(message)
    return made


STEPS: Mapping[str, Callable[[Conversation, frozenset[int]], Conversation]] = {
    "as_system": _as_system,
    "as_parts": _as_parts,
    "without_content": _without_content,
    "split_calls": _split_calls_from_text,
    "split_calls_without_content": _split_calls_without_content,
    "gather_texts": _gather_texts,
    "one_call": _one_call_a_message,
    "merge_instructions": _merge_instructions,
    "fold_instructions": _fold_instructions,
    "join_neighbours": _join_neighbours,
}


def possible_steps(messages: Conversation, concerned: Callable[[Mapping[str, Any]], bool]) -> Iterator[Step]:
    """Yield the steps that change some of the ``concerned`` messages; those that change least come first."""
    indices = [i for i, message in enumerate(messages) if concerned(message)]

    def indices_where(condition: Callable[[Mapping[str, Any]], Any]) -> list[int]:
        return [i for i in indices if condition(messages[i])]

    yield "as_system", indices_where(lambda message: message["role"] == "developer")
    yield "without_content", indices_where(lambda message: message.get("tool_calls") and message["content"] == "")
    yield "one_call", indices_where(lambda message: len(message.get("tool_calls") or ()) > 1)
    beside = indices_where(lambda message: message.get("tool_calls") and message["content"])
    yield "split_calls", beside
    yield "split_calls_without_content", beside
    yield "gather_texts", beside
    yield "as_parts", indices_where(lambda message: isinstance(message["content"], str) and message["content"])
    instructing = indices_where(lambda message: message["role"] in INSTRUCTING)
    yield (
        "merge_instructions",
        instructing if len(_instruction_contents(messages)) > 1 or messages[0]["role"] not in INSTRUCTING else [],
    )
    yield "fold_instructions", instructing if any(message["role"] == "user" for message in messages) else []
    yield "join_neighbours", [0] if any(_may_join(*pair) for pair in pairwise(messages)) else []


def _may_join(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return (
        first["role"] == second["role"]
        and first["role"] in ("user", "assistant")
        and not first.get("tool_calls")
        and not second.get("tool_calls")
    )


def _instruction_contents(messages: Conversation) -> list[Any]:
    return [message["content"] for message in messages if message["role"] in INSTRUCTING]


def _content_text(content: Any) -> str:
    return "".join(part["text"] for part in content) if isinstance(content, list) else content or ""


def _text_parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def _join_contents(contents: Sequence[Any], between: str) -> Any:
    """Join contents in the form of the last one: a string, or a list of parts."""
    text = between.join(filter(None, map(_content_text, contents)))
    return _text_parts(text) if isinstance(contents[-1], list) else text
