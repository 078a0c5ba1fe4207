"""One text for one conversation, whichever API it comes by; nothing that JSON can be raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from paternoster_contract.text_chains.canonical_text import CHATS, COMPLETIONS, answer_parts, canonical_text

WORDS = ["role", "content", "type", "text", "user", "assistant", "tool_calls", "function", "name", "arguments",
         "input", "tool_use", "tool_result", "reasoning", "summary", "output", "messages", "system",
         "prompt", "tools"]  # fmt: skip
NAMES = st.sampled_from(WORDS) | st.text(max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=25,
)


@given(path=st.sampled_from([*CHATS, COMPLETIONS, "/v1/embeddings"]), body=JSON, messages=JSON)
def test_no_json_raises(path, body, messages):
    for each in (body, {"messages": messages, "input": messages, "prompt": messages, "system": messages}):
        text = canonical_text(path, each)
        assert text is None or isinstance(text.encode(), bytes)
        assert text is None or text.head_bytes is None or text.head_bytes <= len(text.encode())


CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Rome?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "now?"}]},
    ]
}  # fmt: skip
RESPONSES = {
    "instructions": "Be brief.",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather in Rome?"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Rome"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"role": "user", "content": "And\nnow?"},
    ],
}
MESSAGES = {
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "Weather in Rome?"},
        {"role": "assistant", "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "sunny"}]},
            {"type": "text", "text": "And\nnow?"}]},
    ],
}  # fmt: skip


def test_one_conversation_has_one_text_in_three_apis():
    texts = [canonical_text(path, body) for path, body in zip(CHATS, (CHAT, RESPONSES, MESSAGES), strict=True)]
    assert texts[0].encode() == texts[1].encode() == texts[2].encode()
    assert texts[0].parts[: texts[0].head] == ["\0system\0", "Be brief."]
    assert b'"city":"Rome"' in texts[0].encode()


@pytest.mark.parametrize("turn", range(1, 5))
def test_later_turns_begin_with_the_text_of_earlier_ones(turn):
    whole = canonical_text(CHATS[0], CHAT).encode()
    assert whole.startswith(canonical_text(CHATS[0], CHAT | {"messages": CHAT["messages"][:turn]}).encode())


def test_an_answer_continues_the_text_as_the_next_turn_does():
    first = canonical_text(CHATS[0], {"messages": CHAT["messages"][:2]})
    after = canonical_text(CHATS[0], {"messages": CHAT["messages"][:3]})
    parts = answer_parts(first, "I look.", calls=[("weather", '{ "city": "Rome" }')])
    assert [*first.parts, *parts] == list(after.parts)
    begun = canonical_text(CHATS[2], {"messages": [*MESSAGES["messages"][:1], {"role": "assistant", "content": "I "}]})
    assert (
        begun.encode() + "".join(answer_parts(begun, "look.")).encode()
        == canonical_text(
            CHATS[2], {"messages": [*MESSAGES["messages"][:1], {"role": "assistant", "content": "I look."}]}
        ).encode()
    )


def test_prompts_of_completions():
    assert canonical_text(COMPLETIONS, {"prompt": ["a", "b"]}).encode() == b"a"
    assert canonical_text(COMPLETIONS, {"prompt": [[1, 2]]}).encode() == b"\1\0\0\0\2\0\0\0"
    assert canonical_text(COMPLETIONS, {"prompt": [True]}) is None
    assert canonical_text("/v1/embeddings", {"input": "a"}) is None


def test_tools_are_settings_unless_no_tool_may_be_called():
    body = {"tools": [{"type": "function"}], **CHAT}
    assert canonical_text(CHATS[0], body).settings == b'{"tools":[{"type":"function"}]}'
    assert canonical_text(CHATS[0], body | {"tool_choice": "none"}).settings == b""
    assert canonical_text(CHATS[0], from_json(to_json(body))) == canonical_text(CHATS[0], body)
