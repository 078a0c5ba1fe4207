"""Parts and fields of messages that other servers wrote, and that clients send back: their texts reach the prompt."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.engine.server.scripted_server import scripted_server
from tests.engine.server.tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
PostChat = Callable[..., Awaitable[tuple[int, Any]]]
QUESTION, NEXT_QUESTION = {"role": "user", "content": "ask"}, {"role": "user", "content": "again"}


def _called(arguments: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "get", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@asynccontextmanager
async def serving_chats(tokenizer: Tokenizer) -> AsyncIterator[PostChat]:
    """What asks one server for the prompt of a conversation: the status, and the prompt or the error."""

    async def post_chat(*messages: Any) -> tuple[int, Any]:
        response = await server.client.post("/tokenize", json={"messages": messages})
        if response.status_code != 200:
            return response.status_code, response.json()["error"]
        text = await server.client.post("/detokenize", json={"tokens": response.json()["tokens"]})
        return 200, text.json()["prompt"]

    async with scripted_server(tokenizer.with_template(QWEN3))(**ROOM) as server:
        yield post_chat


THOUGHT = "<think>\nhm\n</think>\n\n"
CITED = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1}}
ANSWER_TEXT = {"type": "text", "text": "said"}
OF_MISTRAL = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True}
ANSWERS: list[tuple[dict[str, Any], str]] = [
    ({"content": None, "refusal": "I will not."}, "I will not."),
    ({"content": "Half.", "refusal": "I will not."}, "Half.\nI will not."),
    ({"content": [{"type": "refusal", "refusal": "I will not."}]}, "I will not."),
    ({"content": [{"type": "output_text", "text": "said", "annotations": [CITED]}]}, "said"),
    ({"content": "said", "annotations": [CITED]}, "said"),
    ({"content": [{"type": "thinking", "thinking": "hm"}, ANSWER_TEXT]}, THOUGHT + "said"),
    ({"content": [OF_MISTRAL, ANSWER_TEXT]}, THOUGHT + "said"),
]


async def test_answers_of_other_servers(tokenizer: Tokenizer) -> None:
    async with serving_chats(tokenizer) as post_chat:
        for answer, shown in ANSWERS:
            status, prompt = await post_chat(QUESTION, {"role": "assistant", **answer}, NEXT_QUESTION)
            assert status == 200, (answer, prompt)
            assert f"assistant\n{shown}<|im_end|>" in prompt


async def test_what_is_only_of_assistants(tokenizer: Tokenizer) -> None:
    async with serving_chats(tokenizer) as post_chat:
        for role in ("user", "system", "developer", "tool"):
            for part in ({"type": "refusal", "refusal": "no"}, {"type": "thinking", "thinking": "hm"}):
                message = {"role": role, "content": [part], **({"tool_call_id": "c"} if role == "tool" else {})}
                status, error = await post_chat(QUESTION, _called("{}"), message)
                assert (status, error["param"]) == (400, "messages.2.content")
                assert f"only a message of role assistant has parts of type {part['type']}" in error["message"]


async def test_parts_of_the_responses_api(tokenizer: Tokenizer) -> None:
    async with serving_chats(tokenizer) as post_chat:
        status, prompt = await post_chat({"role": "user", "content": [{"type": "input_text", "text": "ask"}]})
        assert status == 200, prompt
        assert "user\nask<|im_end|>" in prompt


async def test_thinking_behind_the_last_question_is_reasoning(tokenizer: Tokenizer) -> None:
    result = {"role": "tool", "tool_call_id": "c", "content": "x"}
    async with serving_chats(tokenizer) as post_chat:
        with_parts = await post_chat(QUESTION, _called("{}") | {"content": [OF_MISTRAL]}, result)
        assert with_parts == await post_chat(QUESTION, _called("{}") | {"reasoning_content": "hm"}, result)


async def test_a_tool_that_found_nothing(tokenizer: Tokenizer) -> None:
    async with serving_chats(tokenizer) as post_chat:
        nothing: tuple[Any, ...] = (None, [], "")
        for content in nothing:
            status, prompt = await post_chat(
                QUESTION, _called("{}"), {"role": "tool", "tool_call_id": "c", "content": content}
            )
            assert status == 200, prompt
            assert "<tool_response>\n\n</tool_response>" in prompt


async def test_arguments_that_are_an_object(tokenizer: Tokenizer) -> None:
    """Clients of Ollama's API write them so; vLLM and llama.cpp read them, too."""
    async with serving_chats(tokenizer) as post_chat:
        for arguments in ({"city": "Zürich", "n": [1]}, {}):
            with_arguments = await post_chat(QUESTION, _called(arguments))
            assert with_arguments[0] == 200
            assert with_arguments == await post_chat(QUESTION, _called(json.dumps(arguments)))


async def test_a_part_without_its_text(tokenizer: Tokenizer) -> None:
    async with serving_chats(tokenizer) as post_chat:
        for part, message in (
            ({"type": "refusal", "text": "x"}, "a part of type refusal needs refusal"),
            ({"type": "output_text"}, "a part of type output_text needs text"),
            ({"type": "image_url", "image_url": {"url": "x"}}, "Input should be 'text'"),
        ):
            status, error = await post_chat(QUESTION, {"role": "assistant", "content": [part]}, NEXT_QUESTION)
            assert status == 400
            assert error["param"].startswith("messages.1.content.0")
            assert message in error["message"]
