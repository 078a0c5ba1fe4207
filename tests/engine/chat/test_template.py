"""Chat templates against transformers' own rendering of them."""

from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import render_jinja_template

from paternoster_engine.chat.errors import ChatTemplateError
from paternoster_engine.chat.template import ChatTemplate
from paternoster_engine.model.source import ModelSource
from paternoster_engine.model.tokenizer import Tokenizer

MOST = 100_000
USER = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def theirs(source: ModelSource) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(str(source.path.parent), gguf_file=source.path.name)


def _render(source: str, messages: list[Any], most: int = MOST, **variables: str) -> str:
    return ChatTemplate(source, variables).render(messages, most)


@pytest.mark.parametrize("generation_prompt", [True, False])
def test_renders_as_transformers_does(
    tokenizer: Tokenizer, theirs: PreTrainedTokenizerBase, generation_prompt: bool
) -> None:
    assert tokenizer.chat_template is not None
    template = ChatTemplate(tokenizer.chat_template, tokenizer.special_names)
    for messages in (
        [{"role": "user", "content": "Hi <b>&</b> 'you'"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "A\nB"}],
        [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}],
    ):
        expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=generation_prompt)
        assert template.render(messages, MOST, add_generation_prompt=generation_prompt) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{% generation %}{{ m.content }}!{% endgeneration %}{% endfor %}",
        "{{ {'b': '<é>', 'a': 1} | tojson(indent=2, sort_keys=true) }}{{ [1] | tojson(separators=[',', ':']) }}",
        "{{ '<é>' | tojson(ensure_ascii=true) }}",
        "{% set ns = namespace(a=1) %}{% for m in messages %}{% set ns.a = m.content %}{% endfor %}{{ ns.a }}",
        "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ dict(a=1) }}{{ range(3) | list }}",
        "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[0]['content'].upper()) | trim }}",
    ],
)
def test_what_templates_of_others_use_does_the_same_here(source: str) -> None:
    ((expected,), _) = render_jinja_template([USER], chat_template=source)
    assert _render(source, USER) == expected


def test_a_template_that_refuses_says_why() -> None:
    with pytest.raises(ChatTemplateError, match="refuses these messages: roles must alternate"):
        _render("{{ raise_exception('roles must alternate') }}", [])


def test_a_template_cannot_reach_out_of_the_sandbox() -> None:
    with pytest.raises(ChatTemplateError):
        _render("{{ messages.__class__.__mro__ }}{{ messages.append(1) }}", [])


def test_templates_may_use_blocks_json_dates_and_loop_control() -> None:
    source = (
        "{% for m in messages %}\n  {% if m == 2 %}\n    {% continue %}\n  {% endif %}\n"
        "{{ m }},{% endfor %}{{ {'a': '<é>'} | tojson }}{{ strftime_now('%Y') | length }}{{ bos_token }}"
    )
    assert _render(source, [1, 2, 3], bos_token="<s>") == '1,3,{"a": "<é>"}4<s>'


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ 1 / (messages | length - 1) }}", "ZeroDivisionError"),
        ("{{ 2.0 ** messages[0]['content'] | length ** 9999 }}", "Overflow"),
        ("{{ range(10 ** 10) | list }}", "OverflowError: Range too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ messages.nothing.there }}", "has no attribute 'nothing'"),
        ("{{ 'a' + 1 }}", "TypeError"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{{ '\\ud800' }}", "UnicodeEncodeError"),
        ("{{ 'x' * 99999 }}{{ 'y' * 2 }}", "makes more than 100000 bytes"),
    ],
)
def test_every_failure_of_a_template_is_one_error(source: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        _render(source, USER)


def test_a_long_failure_is_cut() -> None:
    with pytest.raises(ChatTemplateError) as raised:
        _render("{{ raise_exception('x' * 100000) }}", [])
    assert len(str(raised.value)) < 500
