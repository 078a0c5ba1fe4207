"""``continue_final_message``: an answer that the client has begun goes on, and ``echo`` gives it whole."""

import json
from typing import Any

import pytest
from tests.engine.server.scripted_server import scripted_server

from paternoster_engine.model.tokenizer import Tokenizer

TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
USER_MESSAGE = {"role": "user", "content": "Hi"}
OPENED = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def _begun(text: str, **fields: Any) -> dict[str, Any]:
    body = {"messages": [USER_MESSAGE, {"role": "assistant", "content": text}], "continue_final_message": True}
    return body | {"add_generation_prompt": False} | fields


async def _prompt(server: Any, **body: Any) -> str:
    """What the model reads, as ``/tokenize`` and the chat itself have it."""
    tokens = await server.client.post("/tokenize", json=body)
    assert tokens.status_code == 200, tokens.text
    answer = await server.client.post("/v1/chat/completions", json=body | {"max_tokens": 1, "return_token_ids": True})
    assert answer.json()["prompt_token_ids"] == tokens.json()["tokens"]
    text = await server.client.post("/detokenize", json={"tokens": tokens.json()["tokens"]})
    prompt: str = text.json()["prompt"]
    return prompt


@pytest.mark.parametrize("parse_special_tokens", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "Sure,",
        "ends with a space ",
        # Also where the template writes the same behind it.
        "m",
        "<|im_end|>",
        "im_end|>\n",
    ],
)
async def test_the_prompt_ends_with_the_last_message(
    tokenizer: Tokenizer, text: str, parse_special_tokens: bool
) -> None:
    async with scripted_server(tokenizer.with_template(TURNS))(parse_special_tokens=parse_special_tokens) as server:
        assert await _prompt(server, **_begun(text)) == OPENED + text
        assert await _prompt(server, **_begun([{"type": "text", "text": text}])) == OPENED + text


async def test_a_template_that_strips_messages_leaves_the_space_that_the_answer_goes_on_from(
    tokenizer: Tokenizer,
) -> None:
    template = TURNS.replace("m.content", "m.content | trim")
    async with scripted_server(tokenizer.with_template(template))() as server:
        assert await _prompt(server, **_begun(" A list: ")) == OPENED + "A list: "


async def test_it_needs_no_word_on_the_generation_prompt(tokenizer: Tokenizer) -> None:
    async with scripted_server(tokenizer.with_template(TURNS))() as server:
        assert await _prompt(server, **_begun("Sure,", add_generation_prompt=None)) == OPENED + "Sure,"


@pytest.mark.parametrize("echo", [False, True])
async def test_an_answer_has_what_was_begun_where_it_is_asked_for(tokenizer: Tokenizer, echo: bool) -> None:
    async with scripted_server(tokenizer.with_template(TURNS))(" I can") as server:
        body = _begun("Yes,", n=2, echo=echo)
        expected = "Yes, I can" if echo else " I can"
        answer = await server.client.post("/v1/chat/completions", json=body)
        assert [choice["message"]["content"] for choice in answer.json()["choices"]] == [expected] * 2
        stream = await server.client.post("/v1/chat/completions", json=body | {"stream": True})
        joined = {0: "", 1: ""}
        for event in stream.text.split("\n\n")[:-2]:
            (choice,) = json.loads(event[6:])["choices"]
            joined[choice["index"]] += choice["delta"].get("content", "")
        assert joined == {0: expected, 1: expected}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (_begun("x", add_generation_prompt=True), "continue_final_message"),
        (_begun(""), "continue_final_message"),
        (_begun("x", messages=[USER_MESSAGE]), "continue_final_message"),
        (
            _begun(
                "x",
                messages=[
                    USER_MESSAGE,
                    {"role": "assistant", "content": "x", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
                ],
            ),
            "continue_final_message",
        ),
        ({"messages": [USER_MESSAGE], "echo": True}, "echo"),
    ],
)
async def test_what_cannot_go_on_is_refused_by_name(tokenizer: Tokenizer, body: dict[str, Any], param: str) -> None:
    async with scripted_server(tokenizer.with_template(TURNS))() as server:
        answer = await server.client.post("/v1/chat/completions", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_template_that_does_not_show_the_last_message_is_told_of(tokenizer: Tokenizer) -> None:
    source = "{% for m in messages %}{{ m.content.split('!')[0] }}{% endfor %}"
    async with scripted_server(tokenizer.with_template(source))() as server:
        answer = await server.client.post("/v1/chat/completions", json=_begun("x!y"))
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "continue_final_message")
