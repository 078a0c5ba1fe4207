"""Stop strings and stop tokens end answers: within a thought they are text, in every API and however text is cut."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.server.scripted_server import scripted_server
from tests.engine.server.tool_templates import DEEPSEEK_R1, QWEN3

from paternoster_engine.core.request import FinishReason
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.generation.output_text import SequenceText
from paternoster_engine.server.parsers.events import Content, Event, Reasoning, join_events
from paternoster_engine.server.parsers.formats import AnswerFormat

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
USER = [{"role": "user", "content": "6 times 7?"}]
WRITTEN = "The Question: what is it?\n</think>\n\nIt is 42. Question: next"
WORDS = ["a", "Question:", "Ques", "tion:", " ", "?", "k>", "<"]


async def _post(tokenizer: Tokenizer, path: str, body: dict[str, Any]) -> Any:
    async with scripted_server(tokenizer.with_template(DEEPSEEK_R1))(WRITTEN, **ROOM) as server:
        answer = await server.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


async def test_chat(tokenizer: Tokenizer) -> None:
    answer = await _post(tokenizer, "/v1/chat/completions", {"messages": USER, "stop": ["Question:"]})
    (choice,) = answer["choices"]
    assert choice["message"]["content"] == "It is 42. "
    assert choice["message"]["reasoning_content"] == "The Question: what is it?"
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("min_tokens", [0, 1000])
async def test_a_token_of_a_chat(tokenizer: Tokenizer, min_tokens: int) -> None:
    (token,) = tokenizer.encode(" Question")
    assert tokenizer.encode(WRITTEN).count(token) == 2
    body = {"messages": USER, "stop_token_ids": [token], "min_tokens": min_tokens, "max_tokens": 1000}
    (choice,) = (await _post(tokenizer, "/v1/chat/completions", body))["choices"]
    content = choice["message"]["content"]
    assert content == "It is 42." if min_tokens == 0 else content.startswith("It is 42. Question: next")


async def test_a_token_of_a_chat_that_does_not_think(tokenizer: Tokenizer) -> None:
    (token,) = tokenizer.encode(" two")
    async with scripted_server(tokenizer)("one two three", **ROOM) as server:
        answer = await server.client.post("/v1/chat/completions", json={"messages": USER, "stop_token_ids": [token]})
    (choice,) = answer.json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("one", "stop")
    assert answer.json()["usage"]["completion_tokens"] == 2


async def test_messages(tokenizer: Tokenizer) -> None:
    body = {"messages": USER, "max_tokens": 100, "stop_sequences": ["Question:"]}
    answer = await _post(tokenizer, "/v1/messages", body)
    assert [block["text"] for block in answer["content"] if block["type"] == "text"] == ["It is 42. "]
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "Question:")


async def test_responses(tokenizer: Tokenizer) -> None:
    answer = await _post(tokenizer, "/v1/responses", {"input": "6 times 7?", "stop": ["Question:"]})
    (text,) = [part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]]
    assert text == "It is 42. "


@given(st.lists(st.sampled_from(WORDS), max_size=8), st.lists(st.sampled_from(WORDS), max_size=8), st.booleans())
def test_the_first_stop_behind_the_thought_ends_the_answer(
    tokenizer: Tokenizer, thought: list[str], answer: list[str], include: bool
) -> None:
    """However the text is cut into tokens, whatever stands in the thought."""
    reasoning, content = "x" + "".join(thought) + "x", "x" + "".join(answer)
    end = content.find("Question:")
    seen = content if end < 0 else content[: end + len("Question:") * include]
    form = AnswerFormat.find_format(QWEN3, tokenizer.special_token_id)
    params = SamplingParams(max_tokens=1000, stop=("Question:",), include_stop_str_in_output=include)
    text = SequenceText(tokenizer, params, parser=form.build_parser(prompt="<think>"))
    events: list[Event] = []
    tokens = tokenizer.encode(f"{reasoning}</think>{content}")
    for i, token in enumerate(tokens):
        delta = text.add_token(token, FinishReason.LENGTH if i == len(tokens) - 1 else None)
        events += delta.events
        if delta.finish_reason is not None:
            break
    assert delta.finish_reason is (FinishReason.LENGTH if end < 0 else FinishReason.STOP)
    assert join_events(events) == [Reasoning(reasoning), *([Content(seen)] if seen else [])]
