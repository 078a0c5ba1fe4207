"""What an answer must be comes after the thinking, and calls of tools may come in its place."""

import json
from collections.abc import Sequence
from typing import Any

import openai
import pytest
from tests.engine.server.following import follow_proposals, follower, seen_tokens
from tests.engine.server.tool_templates import DEEPSEEK_R1, QWEN3
from tests.engine.server.tools.test_required_calls import CALLS, FAMILIES
from tests.engine.server.tools_tokenizer import vocabulary_of, with_special

from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.grammar import Grammar
from paternoster_engine.sampling.grammars.lazy import LazyMatcher
from paternoster_engine.sampling.grammars.source import GrammarSource, to_grammar
from paternoster_engine.server.parsers.formats import AnswerFormat

FORMAT = GrammarSource("json", '{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}')
SOURCES = {
    '{"a": 1}': FORMAT,
    "12-ab": GrammarSource("regex", "[0-9]+-[a-z]+"),
    "Par": GrammarSource("choice", '["Paris", "Par"]'),
    "Q7": GrammarSource("grammar", 'root ::= "Q" [0-9]+'),
    "x<f=1>2</f>": GrammarSource(
        "structural_tag",
        '{"triggers": ["<f"], "structures": [{"begin": "<f=1>", "schema": {"type": "integer"}, "end": "</f>"}]}',
    ),
}
MARKS = ["[THINK]", "[/THINK]"]
HARMONY = FAMILIES["harmony"]


@pytest.mark.parametrize("text", SOURCES)
def test_each_kind_of_grammar_follows_the_thought(tokenizer: Tokenizer, text: str) -> None:
    form = AnswerFormat.find_format(QWEN3, tokenizer.special_token_id)
    outline = form.of_answer(None, "<|im_start|>assistant\n")
    assert outline is not None
    follow = follower(tokenizer, form, outline, SOURCES[text])
    for written in (text, f"<think>\nHm, {{ </thin 7\n</think>\n\n{text}", f"<think>\n</think>{text}"):
        assert follow(written) == "", written
    if not text.startswith("x"):
        assert follow("Yes.") == "Yes."
        assert follow("<think>\nHm.\n</think>\n\nYes.").strip() == "Yes."
        assert follow("<think") == follow("<think>\n</think>\n") == "<end>"
    assert follow("<think>\nHm") == "<end>"


def test_no_token_ends_the_thought_and_begins_what_is_not_asked_for(tokenizer: Tokenizer) -> None:
    form = AnswerFormat.find_format(QWEN3, tokenizer.special_token_id)
    outline = form.of_answer(None, "")
    assert outline is not None
    source = FORMAT._replace(outline=outline.lark)
    grammar = Grammar(vocabulary_of(tokenizer), to_grammar(source, frozenset()))
    matcher = LazyMatcher(grammar, outline.free, seen_tokens(tokenizer, form))
    request = Request(
        RequestSpec("r", [1], SamplingParams(max_tokens=9), eos_token_ids=tokenizer.eos_token_ids), matcher=matcher
    )
    request.output += tokenizer.encode("<think>\nHm\n</think")
    mask = matcher.allowed_mask(request)
    assert mask is not None
    allowed = {tokenizer.token_bytes(t) for t in range(tokenizer.vocab_size) if mask[t // 8] >> t % 8 & 1}
    assert {b">", b"ing", b"ink"} <= allowed
    assert not {b">.", b"><"} & allowed
    assert len(allowed) > 49_000
    request.output += tokenizer.encode(" or not</think> ")
    mask = matcher.allowed_mask(request)
    assert mask is not None
    allowed = {tokenizer.token_bytes(t) for t in range(tokenizer.vocab_size) if mask[t // 8] >> t % 8 & 1}
    assert b"{" in allowed
    assert not [token for token in allowed if token.strip()[:1] not in (b"", b"{")]


def test_proposals_go_through_a_thought_and_out_of_it(tokenizer: Tokenizer) -> None:
    form = AnswerFormat.find_format(QWEN3, tokenizer.special_token_id)
    outline = form.of_answer(None, "<|im_start|>assistant\n")
    assert outline is not None
    source = FORMAT._replace(outline=outline.lark)
    grammar = Grammar(vocabulary_of(tokenizer), to_grammar(source, frozenset()))
    seen = seen_tokens(tokenizer, form)

    def fresh(output: list[int]) -> Request:
        matcher = LazyMatcher(grammar, outline.free, seen)
        request = Request(
            RequestSpec("r", [1], SamplingParams(max_tokens=9), eos_token_ids=tokenizer.eos_token_ids), matcher=matcher
        )
        request.output += output
        return request

    for text in ('{"a": 1}', '<think>\nHm: {"a\n</think>\n\n{"a": 1}', '<think>\n</think>{"a": 2}'):
        follow_proposals(fresh, tokenizer.encode(text))


def test_thinking_that_the_prompt_has_begun_or_ended(tokenizer: Tokenizer) -> None:
    form = AnswerFormat.find_format(DEEPSEEK_R1, tokenizer.special_token_id)
    outline = form.of_answer(None, "<think>\n")
    assert outline is not None
    follow = follower(tokenizer, form, outline, FORMAT)
    assert follow('Hm {"a": 2}.\n</think>\n\n{"a": 1}') == ""
    assert follow("Hm.") == "<end>"
    assert form.of_answer(None, "<think>\n\n</think>\n\n") is None


def test_marks_that_are_control_tokens(tokenizer: Tokenizer) -> None:
    made = with_special(tokenizer, *MARKS, template="[THINK][/THINK]")
    form = AnswerFormat.find_format("[THINK][/THINK]", made.special_token_id)
    outline = form.of_answer(None, "")
    assert outline is not None
    follow = follower(made, form, outline, FORMAT)
    assert follow('[THINK]Hm[/THINK]{"a": 1}') == follow('{"a": 1}') == ""
    assert follow("[THINK]Hm") == "<end>"
    assert follow("Yes") == "Yes"


def test_channels(tokenizer: Tokenizer) -> None:
    made = with_special(tokenizer, *HARMONY[1], template=HARMONY[0])
    form = AnswerFormat.find_format(HARMONY[0], made.special_token_id)
    outline = form.of_answer(CALLS, "<|start|>assistant")
    assert outline is not None
    follow = follower(made, form, outline, FORMAT)
    final = '<|channel|>final<|message|>{"a": 1}'
    call = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"
    thought = "<|channel|>analysis<|message|>Hm: {<|end|><|start|>assistant"
    for text in (final, call, thought + final, thought + call):
        assert follow(text) == "", text
    for text in ('{"a": 1}', "<|channel|>final<|message|>Yes", thought + "<|channel|>final<|message|>Yes"):
        assert follow(text) != "", text


@pytest.mark.parametrize("family", ["hermes", "mistral"])
def test_calls_may_come_in_place_of_the_answer(tokenizer: Tokenizer, family: str) -> None:
    template, special = FAMILIES[family]
    made = with_special(tokenizer, *special, template=template)
    form = AnswerFormat.find_format(template, made.special_token_id)
    assert form.form is not None
    outline = form.of_answer(CALLS, "")
    assert outline is not None
    follow = follower(made, form, outline, FORMAT)
    call = form.form.opening + form.form.before % "weather" + '{"city": "Rome"}' + form.form.after + form.form.closing
    assert follow('{"a": 1}') == follow(call) == ""
    assert follow("It rains.") == "It rains."
    assert follow(call.replace("Rome", "Bonn")) != ""


def test_calls_that_begin_as_json_may_not(tokenizer: Tokenizer) -> None:
    form = AnswerFormat.find_format(FAMILIES["llama3_json"][0], tokenizer.special_token_id)
    assert form.of_answer(CALLS, "") is None
    assert AnswerFormat.find_format("[TOOL_CALLS]", tokenizer.special_token_id).of_answer(CALLS, "") is None


def test_a_real_model_answers_after_the_thinking(run_engine: Any, exact: Sequence[str]) -> None:
    """The template has it begin to think; it may write anything then, until its own marks end its thinking."""
    begins = QWEN3.replace(
        "assistant\n{% if", "assistant\n{% if enable_thinking is not defined %}<think>\n{% endif %}{% if"
    )
    with run_engine("--chat-template", begins, *exact, "--max-model-len", "1024") as engine:
        client = openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0)
        name = client.models.list().data[0].id
        schema: Any = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
        schema["additionalProperties"] = False
        response_format: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        chat_fields: Any = {"model": name, "messages": [{"role": "user", "content": "1 or 2?"}], "max_tokens": 40}
        silent = {"chat_template_kwargs": {"enable_thinking": False}}
        (choice,) = client.chat.completions.create(
            **chat_fields, response_format=response_format, extra_body=silent, seed=1
        ).choices
        assert choice.finish_reason == "stop"
        assert json.loads(choice.message.content or "")["a"] in (1, 2)
        (choice,) = client.chat.completions.create(**chat_fields, response_format=response_format, seed=1).choices
        # It may end after its thinking alone.
        assert choice.finish_reason == "length" or json.loads(choice.message.content or "")["a"] in (1, 2)
        assert choice.message.to_dict().get("reasoning_content", "").strip()
        response = client.responses.create(
            model=name, input="1 or 2?", max_output_tokens=40, extra_body=silent | {"seed": 1},
            text={"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}},
        )  # fmt: skip
        assert json.loads(response.output_text)["a"] in (1, 2)
