"""``disable_any_whitespace`` of an engine: JSON of all its answers has no white space between its tokens."""

from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from tests.engine.server.scripted_server import scripted_server
from tests.engine.server.tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars.source import GrammarSource, to_grammar

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
TAG = {"type": "structural_tag", "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f"]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}]
LOOSE, TIGHT = '{"a": 1}', '{"a":1}'
CASES: list[tuple[dict[str, Any], str]] = [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}, "%s"),
    ({"response_format": {"type": "json_object"}}, "%s"),
    ({"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": False}}, "%s"),
    ({"structured_outputs": {"structural_tag": TAG}}, "said <f>%s</f>"),
    ({"tools": TOOLS, "tool_choice": "required"}, '<tool_call>\n{"name": "f", "arguments": %s}\n</tool_call>'),
    ({"tools": TOOLS}, '<tool_call>\n{"name": "f", "arguments": %s}\n</tool_call>'),
]


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize(("body", "answer"), CASES)
async def test_json_of_every_answer(tokenizer: Tokenizer, body: dict[str, Any], answer: str, compact: bool) -> None:
    serve = scripted_server(tokenizer.with_template(QWEN3))
    lltokenizer = LLTokenizer(tokenizer.to_json())
    async with serve("one", **ROOM, args={"disable_any_whitespace": compact}) as server:
        compiler = server.state.served.answers.grammars._compiler
        sources: list[GrammarSource] = []
        compile_one = compiler.compile
        compiler.compile = lambda source: sources.append(source) or compile_one(source)  # type: ignore
        messages = [{"role": "user", "content": "Hi"}]
        response = await server.client.post(
            "/v1/chat/completions", json={"messages": messages, "max_tokens": 2, **body}
        )
        assert response.status_code == 200, response.text
    (source,) = sources
    assert source.compact == compact
    grammar = to_grammar(source, frozenset())

    def accepts(text: str) -> bool:
        matcher = LLMatcher(lltokenizer, grammar)
        assert not matcher.get_error(), matcher.get_error()
        tokens = lltokenizer.tokenize_str(text)
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()

    # A grammar of calls begins behind the mark that begins one.
    begun = answer.removeprefix("<tool_call>") if "tools" in body and "tool_choice" not in body else answer
    assert accepts(begun % TIGHT)
    assert accepts(begun % LOOSE) != compact
