"""Texts between calls stay apart, and what a call leaves behind is no text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.server.openai.choice_events import ChoiceEvents
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Calls, Content, Event, Reasoning, join_events
from paternoster_engine.server.parsers.formats import TOOL_FORMATS, AnswerFormat

TOOLS = {"f": {"properties": {"a": {"type": "integer"}}}}
CALLS = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
    "mistral": '[TOOL_CALLS]f{"a": 1}',
    "qwen3_coder": "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "glm45": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
}
CALLED: list[Event] = [CallBegin("f"), Arguments('{"a": 1}')]


def _parse(name: str, text: str) -> list[Event]:
    form = AnswerFormat(TOOL_FORMATS[name], channels=name == "harmony")
    results = []
    for pieces in ([text], list(text)):
        parser = form.build_parser(TOOLS)
        results.append(
            join_events([*(event for piece in pieces for event in parser.parse_piece(piece)), *parser.finish()])
        )
    assert results[0] == results[1]
    return results[0]


@pytest.mark.parametrize("name", CALLS)
@given(st.lists(st.sampled_from(["Up.", "Now", "CALL", "\n", " ", "\n\n"]), max_size=9))
def test_content_is_what_the_model_wrote_but_for_white_space_at_its_ends(name: str, parts: list[str]) -> None:
    events = _parse(name, "".join(CALLS[name] if part == "CALL" else part for part in parts))
    texts = ["".join(part for part in parts if part != "CALL")]
    if "CALL" in parts:
        before, after = "".join(parts[: parts.index("CALL")]), "".join(parts).rpartition("CALL")[2]
        texts = [texts[0] if before.strip() else texts[0].lstrip()]
        texts = [texts[0] if after.strip() else texts[0].rstrip()]
    assert "".join(event.text for event in events if isinstance(event, Content)) == texts[0]
    assert [event for event in events if not isinstance(event, Content)] == CALLED * parts.count("CALL")
    assert all(event.text.strip() for event in events if isinstance(event, Content)) or "CALL" not in parts


LEFTOVER = [
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}}\n</tool_call>'),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}}}]\n}\n</tool_call>'),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}"}\n</tool_call>'),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call></tool_call>\n</tool_call>'),
    ("hermes", '<tool_call>\n[{"name": "f", "arguments": {"a": 1}}}]\n</tool_call>'),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}\n</tool_call>'),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}}\n</tool_c'),
    ("llama3_json", '{"name": "f", "parameters": {"a": 1}}}'),
    ("llama3_json", '<|python_tag|>{"name": "f", "parameters": {"a": 1}}}\n}'),
    ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}}]'),
    ("mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]]'),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1}}'),
    ("qwen3_coder", "<function=f>\n<parameter=a>\n1\n</parameter>\n</parameter>\n</function>\n</tool_call>"),
    ("qwen3_coder", "<tool_call><function=f>\n<parameter=a>\n1\n</parameter></function>\n</function>\n</tool_call>"),
    ("qwen3_coder", "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>}\n</tool_call>\n</tool_call>"),
    ("glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value></arg_value>\n</tool_call>"),
    ("glm45", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n}\n</tool_call>\n</tool_call>"),
    ("pythonic", "[f(a=1)]]"),
    ("pythonic", "[f(a=1))]"),
    ("pythonic", "<|python_start|>[f(a=1,),]\n]<|python_end|>"),
    ("harmony", '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}}<|call|>'),
    ("harmony", '<|channel|>commentary to=functions.f<|message|> {"a": 1} }}<|call|>'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), LEFTOVER)
def test_what_a_call_leaves_behind_is_no_text(name: str, text: str) -> None:
    call, arguments = _parse(name, text)
    assert call == CallBegin("f")
    assert isinstance(arguments, Arguments)
    assert arguments.text.strip() == '{"a": 1}'


@pytest.mark.parametrize(
    ("name", "text", "events"),
    [
        # A brace too many within a list does not end it, ...
        ("hermes", '<tool_call>[{"name": "f", "arguments": {"a": 1}}}, {"name": "f", "arguments": {"a": 1}}]',
         CALLED * 2),
        ("pythonic", "[f(a=1)), f(a=1)]", CALLED * 2),
        # ... text behind it is text, ...
        ("hermes", f'{CALLS["hermes"]} }} is a brace', [*CALLED, Content("} is a brace")]),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}} words </tool_call> end',
         [*CALLED, Content("words  end")]),
        # ... and marks around what is no call are its text.
        ("hermes", f'{CALLS["hermes"]}<tool_call>{{"name": "g"}}</tool_call>',
         [*CALLED, Content('<tool_call>{"name": "g"}</tool_call>')]),
        ("harmony", "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
         [Content("I look.\nYes.")]),
        ("harmony", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>analysis<|message|>So.",
         [Reasoning("Hm.\nSo.")]),
    ],
)  # fmt: skip
def test_text_behind_calls(name: str, text: str, events: list[Event]) -> None:
    assert _parse(name, text) == events


def _message(events: list[Event]) -> tuple[str | None, str | None]:
    message = ChoiceEvents(lambda: "id").write_message(events)
    deltas = ChoiceEvents(lambda: "id")
    streamed = [deltas.write_delta([event]) for event in events]
    assert "".join(delta.content or "" for delta in streamed) == (message.content or "")
    if "reasoning" in message.model_fields_set:
        assert "".join(delta.reasoning or "" for delta in streamed if "reasoning" in delta.model_fields_set) == (
            message.reasoning
        )
        return message.content, message.reasoning
    return message.content, None


def test_texts_without_white_space_between_are_parted_by_a_line_break() -> None:
    assert _message([Content("Up."), *CALLED, Content("Now"), Content(" this"), *CALLED]) == ("Up.\nNow this", None)
    assert _message([Content("Up.\n"), *CALLED, Content("Now")]) == ("Up.\nNow", None)
    assert _message([Content("Up."), *CALLED, Content("\n\nNow")]) == ("Up.\n\nNow", None)
    assert _message([*CALLED, Content("Now")]) == ("Now", None)
    assert _message([Content("one"), Content(" two"), Content("three")]) == ("one twothree", None)
    assert _message([Reasoning("Hm."), Content("I look."), Reasoning("So."), *CALLED, Content("Yes.")]) == (
        "I look.\nYes.", "Hm.\nSo.",
    )  # fmt: skip


def test_a_call_that_is_left_out_parts_texts_as_well() -> None:
    answer = [*CALLED, Content("One."), *CALLED, Content("Two."), *CALLED, Content(" Three.")]
    first = [*CALLED, Content("One."), Content("\nTwo."), Content(" Three.")]
    assert list(Calls(parallel=False).filter_events(answer)) == first
    assert list(Calls(parallel=True).filter_events(answer)) == answer
