"""Calls that a model begins by itself: from there on they are held to the tools' schemas, and all else is free."""

import json
import random
from collections.abc import Sequence
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from tests.engine.server.following import follow_proposals, follower, seen_tokens
from tests.engine.server.scripted_server import scripted_server
from tests.engine.server.tool_templates import QWEN3
from tests.engine.server.tools.test_required_calls import FAMILIES
from tests.engine.server.tools_tokenizer import vocabulary_of, with_special

from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.grammar import Grammar
from paternoster_engine.sampling.grammars.lazy import LazyMatcher
from paternoster_engine.sampling.grammars.source import GrammarSource, to_grammar
from paternoster_engine.server.parsers.call_form import RequiredCalls
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Event, Reasoning, join_events
from paternoster_engine.server.parsers.formats import AnswerFormat

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
SCHEMA = {
    "type": "object",
    "$defs": {"unit": {"enum": ["C", "°F"]}},
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 4},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 2},
        "unit": {"$ref": "#/$defs/unit"},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
LOOSE = {"type": "object", "maxProperties": 0}
CALLS = RequiredCalls([("weather", SCHEMA), ("now.here", LOOSE)], several=True)
TOOLS = dict(CALLS.tools)
ROME = '{"city": "Rome", "unit": "C"}'
FORMS = FAMILIES | {
    "mistral_named": ("[TOOL_CALLS][ARGS]{{ tools }}", ["[TOOL_CALLS]", "[ARGS]"]),
    "hermes_text": (QWEN3 + "{{ 1 }}", []),
}
BEGINNINGS: dict[str, Sequence[str]] = {
    "hermes": ("<tool_call>",),
    "hermes_text": ("Well <tool_call>", "<think>\n<tool_call></think><tool_call>"),
    "llama3_json": (
        '{"name": "weather"',
        '<|python_tag|>{"type": "function", "name":"now.here"',
        ' {\n"name" :"weather"',
    ),
    "mistral": ("[TOOL_CALLS]",),
    "mistral_named": ("[TOOL_CALLS]",),
    "harmony": (
        "<|channel|>commentary to=functions.",
        "<|channel|>analysis<|message|>to=functions.x<|end|><|start|>assistant to=functions.",
    ),
}
WRITTEN: dict[str, Sequence[str]] = {
    "hermes": (
        '<tool_call>\n{"name": "weather", "arguments": %s}\n</tool_call>',
        '<tool_call>{"name":"weather","arguments":%s}</tool_call> and so on',
        '<tool_call>[{"name": "now.here", "arguments": {}}, {"name": "weather", "arguments": %s}]</tool_call>',
        '<think>\n<tool_call>no</think>Yes. <tool_call>\n{"name": "weather", "arguments": %s}\n</tool_call>',
    ),
    "llama3_json": (
        '{"name": "weather", "parameters": %s}',
        '<|python_tag|>{"type": "function", "name": "weather", "parameters": %s}',
        '{"name": "now.here", "parameters": {}} ; {"name":"weather","arguments":%s}',
    ),
    "mistral": (
        '[TOOL_CALLS] [{"name": "weather", "arguments": %s}]',
        'So[TOOL_CALLS][{"name": "weather", "arguments": %s}]',
    ),
    "mistral_named": ("[TOOL_CALLS]weather[ARGS]%s", "So[TOOL_CALLS]now.here{}[TOOL_CALLS]weather%s"),
    "harmony": (
        "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>%s",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.weather<|channel|>commentary json"
        "<|message|>%s",
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather"
        "<|message|>%s",
    ),
}  # fmt: skip
WRITTEN["hermes_text"] = WRITTEN["hermes"]
FREE: dict[str, Sequence[str]] = {
    "hermes": ("I would write <tool_", "<think>\nHm"),
    "llama3_json": ('{"name": "Bob", "parameters": {}}', '{"a": 1}', 'See {"name": "weather", "parameters": {}}'),
    "mistral": ('[{"name": "weather"}]',),
    "mistral_named": ("weather{}",),
    "harmony": (
        "<|channel|>final<|message|>Use to=functions.weather here",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
    ),
}


def _form_of(tokenizer: Tokenizer, name: str) -> tuple[Tokenizer, AnswerFormat]:
    template, special = FORMS[name]
    made = with_special(tokenizer, *special, template=template)
    return made, AnswerFormat.find_format(template, made.special_token_id)


def _parsed(form: AnswerFormat, text: str) -> list[Event]:
    parser = form.build_parser(TOOLS, "")
    return join_events([*parser.parse_piece(text), *parser.finish()])


def _calls(events: Sequence[Event]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, CallBegin):
            found.append((event.name, ""))
        elif isinstance(event, Arguments):
            found[-1] = (found[-1][0], found[-1][1] + event.text)
    return found


@pytest.mark.parametrize("name", FORMS)
def test_calls_as_models_write_them_and_text(tokenizer: Tokenizer, name: str) -> None:
    made, form = _form_of(tokenizer, name)
    outline = form.outline_optional_calls(CALLS, "")
    assert outline is not None
    follow = follower(made, form, outline)
    for written in WRITTEN[name]:
        text = written % ROME
        assert follow(text) == "", text
        assert _calls(_parsed(form, text))[-1] == ("weather", ROME)
        for wrong in ('{"city": "Rome"}', '{"city": "", "unit": "C"}', '{"city": "Rome", "unit": "K"}', "{}"):
            assert follow(written % wrong) != "", wrong
        # It cannot end within.
        assert follow((written % ROME[:-3]).split(ROME[:-3])[0] + ROME[:-3]) == "<end>"
    for text in FREE.get(name, ()):
        assert follow(text) == "", text
        assert not _calls(_parsed(form, text))


@pytest.mark.parametrize("name", FORMS)
def test_whatever_is_sampled_every_call_is_of_its_schema(tokenizer: Tokenizer, name: str) -> None:
    """Any token is as likely as any other, but that calls are begun and that answers end."""
    made, form = _form_of(tokenizer, name)
    outline = form.outline_optional_calls(CALLS, "")
    assert outline is not None
    grammar = Grammar(
        vocabulary_of(made),
        to_grammar(GrammarSource("lark", outline.lark), frozenset()),
    )
    seen, (end, *_) = seen_tokens(made, form), made.eos_token_ids
    validators = {tool: jsonschema_rs.Draft202012Validator(schema) for tool, schema in CALLS.tools}
    text_tokens = [made.encode(text) for text in ("So", " x", "<", "tool", "\n", " {")]
    num_calls = num_ended = 0
    for seed in range(8):
        pick = random.Random(seed)
        matcher = LazyMatcher(grammar, outline.free, seen)
        request = Request(
            RequestSpec("r", [1], SamplingParams(max_tokens=200), eos_token_ids=made.eos_token_ids), matcher=matcher
        )
        sampled: list[int] = []
        free_of: list[int] = []
        while len(sampled) < 200:
            mask = matcher.allowed_mask(request)
            assert matcher.fault is None
            assert mask is not None
            if not mask:
                if not free_of:
                    begun = made.encode(pick.choice(BEGINNINGS[name]))
                    free_of = begun if pick.random() < 0.5 or not sampled else list(pick.choice(text_tokens))
                    if sampled and pick.random() < 0.2:
                        free_of = [end]
                token = free_of.pop(0)
            else:
                free_of = []
                bits = np.unpackbits(np.frombuffer(mask, dtype=np.uint8), bitorder="little")
                allowed = np.flatnonzero(bits).tolist()
                short = [t for t in allowed if len(seen.spelled(t)) == 1 and not seen.spelled(t).isspace()]
                token = pick.choice(short if short and pick.random() < 0.7 else allowed)
            if token in made.eos_token_ids:
                break
            sampled.append(token)
            request.output.append(token)
        text = b"".join(seen.spelled(token) for token in sampled).decode(errors="replace")
        if token not in made.eos_token_ids:
            continue
        num_ended += 1
        for tool, arguments in _calls(_parsed(form, text)):
            num_calls += 1
            assert validators[tool].is_valid(json.loads(arguments)), (text, arguments)
    assert num_ended >= 2
    assert num_calls >= 2


def test_a_beginning_that_is_no_call_is_text(tokenizer: Tokenizer) -> None:
    """Its last token goes on with what no call has; then there may be others."""
    made, form = _form_of(tokenizer, "mistral")
    outline = form.outline_optional_calls(CALLS, "")
    assert outline is not None
    follow = follower(made, form, outline)
    hermes, hermes_form = _form_of(tokenizer, "hermes_text")
    token = next(t for t in range(hermes.vocab_size) if hermes.token_bytes(t) == b"></")
    assert follow("[TOOL") == ""
    auto = hermes_form.outline_optional_calls(CALLS, "")
    assert auto is not None
    grammar = Grammar(
        vocabulary_of(hermes),
        to_grammar(GrammarSource("lark", auto.lark), frozenset()),
    )
    matcher = LazyMatcher(grammar, auto.free, seen_tokens(hermes, hermes_form))
    request = Request(
        RequestSpec("r", [1], SamplingParams(max_tokens=9), eos_token_ids=hermes.eos_token_ids), matcher=matcher
    )
    request.output += [*hermes.encode("<tool_call"), token]
    assert matcher.allowed_mask(request) == b""
    request.output += hermes.encode("<tool_call>")
    assert matcher.allowed_mask(request)


def test_a_minimum_of_tokens_holds_in_free_text(tokenizer: Tokenizer) -> None:
    made, form = _form_of(tokenizer, "hermes")
    outline = form.outline_optional_calls(CALLS, "")
    assert outline is not None
    grammar = Grammar(
        vocabulary_of(made),
        to_grammar(GrammarSource("lark", outline.lark), frozenset()),
    )
    for params in ({"min_tokens": 2}, {"ignore_eos": True}):
        matcher = LazyMatcher(grammar, outline.free, seen_tokens(made, form))
        sampling_params = SamplingParams(max_tokens=9, **params)  # type: ignore[arg-type]
        request = Request(RequestSpec("r", [1], sampling_params, eos_token_ids=made.eos_token_ids), matcher=matcher)
        mask = matcher.allowed_mask(request)
        assert mask is not None
        assert sum(byte.bit_count() for byte in mask) == made.largest_id + 1 - len(made.eos_token_ids)
        assert not any(mask[end // 8] >> end % 8 & 1 for end in made.eos_token_ids)
        assert len(mask) == len(grammar.start_matcher().compute_bitmask())


async def test_only_strict_tools_are_held_to_their_schemas(tokenizer: Tokenizer) -> None:
    """Without any nothing is compiled; a schema that cannot be enforced is refused where it should be."""
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    odd = {"type": "array", "uniqueItems": True}

    def tool(strict: bool | None, schema: Any) -> dict[str, Any]:
        return {
            "type": "function",
            "function": {"name": "f", "parameters": {"properties": {"a": schema}}, "strict": strict},
        }

    async with scripted_server(tokenizer.with_template(QWEN3))("one two", **ROOM) as server:
        counts = server.loop._observer.grammars
        for strict, schema, status, compiled in (
            (None, odd, 200, 0),
            (False, {}, 200, 0),
            (True, {}, 200, 1),
            (True, odd, 400, 1),
        ):
            response = await server.client.post("/v1/chat/completions", json=chat | {"tools": [tool(strict, schema)]})
            assert (response.status_code, counts["compiled"]) == (status, compiled), response.text
        assert response.json()["error"]["param"] == "tools.0.function.parameters"
        assert "uniqueItems" in response.json()["error"]["message"]
        none = chat | {"tools": [tool(True, odd)], "tool_choice": "none"}
        assert (await server.client.post("/v1/chat/completions", json=none)).status_code == 200
        item = {"type": "function", "name": "f", "parameters": {"properties": {"a": odd}}, "strict": True}
        response = await server.client.post("/v1/responses", json={"input": "Hi", "tools": [item]})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "tools.0.parameters")


@pytest.mark.parametrize("name", ["hermes", "mistral", "harmony"])
def test_proposals_go_into_a_call_and_out_of_it(tokenizer: Tokenizer, name: str) -> None:
    """A grammar takes some, and all within free text; rows of proposals allow what the request would there."""
    made, form = _form_of(tokenizer, name)
    outline = form.outline_optional_calls(CALLS, "")
    assert outline is not None
    grammar = Grammar(
        vocabulary_of(made),
        to_grammar(GrammarSource("lark", outline.lark), frozenset()),
    )
    seen = seen_tokens(made, form)

    def fresh(output: list[int]) -> Request:
        matcher = LazyMatcher(grammar, outline.free, seen)
        request = Request(
            RequestSpec("r", [1], SamplingParams(max_tokens=9), eos_token_ids=made.eos_token_ids), matcher=matcher
        )
        request.output += output
        return request

    for written in WRITTEN[name]:
        for arguments in (ROME, '{"city": "Rome", "unit": "K"}'):
            follow_proposals(fresh, made.encode(written % arguments))


def test_what_comes_out_of_free_text(tokenizer: Tokenizer) -> None:
    form = AnswerFormat.find_format(QWEN3, tokenizer.special_token_id)
    events = _parsed(form, "<think>\nHm.\n</think>\n\nYes.")
    assert events == [Reasoning("Hm."), Content("Yes.")]
