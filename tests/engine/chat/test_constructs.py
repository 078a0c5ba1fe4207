"""Templates of the families' constructs, with tools, documents and variables, against transformers' rendering."""

from typing import Any

import pytest
from tests.engine.chat.constructs import CONVERSATIONS, DOCUMENTS, TEMPLATES, TOOLS
from transformers.utils.chat_template_utils import render_jinja_template

from paternoster_engine.chat.errors import ChatTemplateError
from paternoster_engine.chat.template import ChatTemplate

NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
GIVEN: list[dict[str, Any]] = [
    {},
    {"tools": TOOLS},
    {"documents": DOCUMENTS},
    {
        "tools": TOOLS,
        "documents": DOCUMENTS,
        "enable_thinking": False,
        "date_string": "1 May",
        "controls": {"length": "short"},
    },
]


@pytest.mark.parametrize("generation_prompt", [True, False])
@pytest.mark.parametrize("given", GIVEN, ids=lambda given: "+".join(given) or "nothing")
@pytest.mark.parametrize("family", TEMPLATES)
def test_renders_as_transformers_does(family: str, given: dict[str, Any], generation_prompt: bool) -> None:
    ours = ChatTemplate(TEMPLATES[family], NAMES)
    rendered = 0
    for messages in CONVERSATIONS:
        variables = given | {"add_generation_prompt": generation_prompt}
        try:
            ((expected,), _) = render_jinja_template([messages], chat_template=TEMPLATES[family], **NAMES, **variables)
        except Exception as error:
            with pytest.raises(ChatTemplateError, match=str(error)[:20]):
                ours.render(messages, 100_000, **variables)
            continue
        assert ours.render(messages, 100_000, **variables) == expected
        rendered += 1
    assert rendered >= 2


def test_what_is_given_reaches_the_prompt() -> None:
    """Lest both sides leave it out."""
    for family in ("llama3", "qwen", "mistral"):
        text = ChatTemplate(TEMPLATES[family], NAMES).render(CONVERSATIONS[0], 100_000, tools=TOOLS)
        assert "wetter_für" in text
        assert "東京" in text
    text = ChatTemplate(TEMPLATES["documents"], NAMES).render(CONVERSATIONS[0], 100_000, documents=DOCUMENTS)
    assert "Document 1: untitled\n<em>It</em> snows." in text
    assert '{"score":0.5,"text":"It rains.","title":"\\u00dcber"}' in text


def test_a_variable_may_have_any_name() -> None:
    source = "{{ most }}{{ self }}{{ messages | length }}"
    assert ChatTemplate(source, {}).render([], 100, most="a", **{"no name": 1}).startswith("a")


def test_of_what_is_left_out_there_is_none() -> None:
    source = "{{ tools is none }} {{ documents is defined }} {{ other is defined }}"
    assert ChatTemplate(source, {}).render([], 100) == "True True False"
