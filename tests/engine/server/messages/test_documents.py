"""Documents and results of searches in Anthropic's form: what is text reaches the model, other kinds are refused."""

from typing import Any

from tests.engine.server.messages.messages_server import CALLING, QUESTION, RESULT, WEATHER, serving
from tests.engine.server.scripted_server import Server

from paternoster_engine.model.tokenizer import Tokenizer

PLAIN = {"type": "text", "media_type": "text/plain", "data": "The word is heron."}
DOCUMENT = {
    "type": "document", "source": PLAIN, "title": "Notes", "context": "of a walk", "citations": {"enabled": True},
    "cache_control": {"type": "ephemeral"},
}  # fmt: skip
PIECES = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "a heron"}]}}
HERON = [{"type": "text", "text": "heron"}]
FOUND = {"type": "search_result", "source": "https://x", "title": "Birds", "content": HERON}
QUESTION_PART = {"type": "text", "text": "Which word?"}


async def _prompt(server: Server, messages: list[Any]) -> tuple[int, str]:
    """The status, and the prompt of what was asked or the error's message."""
    body = {"max_tokens": 1, "messages": messages, "tools": [WEATHER]}
    response = await server.client.post("/v1/messages", json=body)
    if response.status_code != 200:
        return response.status_code, response.json()["error"]["message"]
    counted = await server.client.post(
        "/v1/messages/count_tokens", json={name: body[name] for name in ("messages", "tools")}
    )
    usage = response.json()["usage"]
    assert counted.json()["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"]
    detokenized = await server.client.post("/detokenize", json={"tokens": [*server.runner.prompt]})
    return 200, detokenized.json()["prompt"]


TEXTS: list[tuple[dict[str, Any], str]] = [
    (DOCUMENT, "Notes\nof a walk\nThe word is heron."),
    (PIECES, "a heron"),
    ({"type": "document", "source": {"type": "content", "content": "a heron"}}, "a heron"),
    (FOUND, "Birds\nhttps://x\nheron"),
]


async def test_texts_reach_the_prompt(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one") as (server, _):
        for block, shown in TEXTS:
            status, prompt = await _prompt(server, [{"role": "user", "content": [block, QUESTION_PART]}])
            assert status == 200, prompt
            assert f"user\n{shown}\nWhich word?<|im_end|>" in prompt
            result = RESULT | {"content": [{"type": "text", "text": "found:"}, block]}
            status, prompt = await _prompt(server, [*QUESTION, CALLING, {"role": "user", "content": [result]}])
            assert status == 200, prompt
            assert f"<tool_response>\nfound:\n{shown}\n</tool_response>" in prompt


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"source": {"type": "base64", "media_type": "application/pdf", "data": "x"}},
     "messages.0.content.0.source.type: Input should be 'text' or 'content' (got 'base64')"),
    ({"source": {"type": "url", "url": "https://x"}}, "source.type: Input should be 'text' or 'content'"),
    ({"source": {"type": "file", "file_id": "f"}}, "source.type: Input should be 'text' or 'content'"),
    ({"source": PLAIN | {"media_type": "text/html"}}, "source.media_type: Input should be 'text/plain'"),
    ({"source": {"type": "text"}}, "a source of type text needs data"),
    ({"source": {"type": "content", "content": []}}, "a source of type content needs content"),
    ({"source": {"type": "content", "content": [{"type": "image"}]}}, "source.content.0.type"),
    ({"source": "x"}, "the source of a document must be an object"),
    ({"source": None}, "a block of type document needs source"),
    ({"type": "search_result"}, "the source of a search_result must be a text"),
]  # fmt: skip


async def test_other_kinds_are_refused(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, "one") as (server, _):
        for change, message in REFUSED:
            status, error = await _prompt(server, [{"role": "user", "content": [DOCUMENT | change, QUESTION_PART]}])
            assert status == 400
            assert message in error
        status, error = await _prompt(server, [*QUESTION, {"role": "assistant", "content": [DOCUMENT]}, *QUESTION])
        assert status == 400
        assert "a message of role assistant has no blocks of type document" in error
