"""The event loop goes on while an engine replays what another one computed."""

from typing import Any

import pytest
from tests.engine.server.continuation.test_continued_streams import CALL, MESSAGES, _script_answer, resume
from tests.engine.server.continuation.test_continued_streams import server as server
from tests.engine.server.continuation.test_handed_over_answers import content
from tests.engine.server.logprobs.test_long_logprobs import Spelled
from tests.engine.server.scripted_server import Server

from paternoster_contract.stream_journal import STREAM_ID, JournalEntry, encode_entries
from paternoster_engine.core.request import FinishReason, TokenLogprobs
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.generation.generation import TOKENS_PER_LINE
from paternoster_engine.server.generation.output_text import SequenceDelta, SequenceText
from paternoster_engine.server.pieces import PIECE

REPLAYED = 900


@pytest.mark.parametrize("needed", [{}, {"prompt_logprobs": 1}], ids=["tokens", "log probabilities of the prompt"])
async def test_others_have_their_turn_while_an_answer_is_replayed(
    server: Server, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, needed: dict[str, Any]
) -> None:
    path, body = "/v1/chat/completions", MESSAGES | {"max_tokens": REPLAYED + 20} | needed
    _script_answer(server, tokenizer, "One two three four. " * REPLAYED)
    undisturbed = await server.client.post(path, json=body, headers={STREAM_ID: CALL.encode()})
    tokens = server.runner.tokens[:REPLAYED]
    lines = [
        encode_entries([JournalEntry(0, tuple(tokens[start : start + TOKENS_PER_LINE]))]).encode()
        for start in range(0, REPLAYED, TOKENS_PER_LINE)
    ]
    read, add_token = Spelled(), SequenceText.add_token

    def count(
        text: SequenceText, token: int, reason: FinishReason | None, logprobs: TokenLogprobs | None = None
    ) -> SequenceDelta:
        read.one()
        return add_token(text, token, reason, logprobs)

    monkeypatch.setattr(SequenceText, "add_token", count)
    async with read.counted():
        continued = await resume(server, path, body, 0, lines)
    assert content(continued) == content(undisturbed)
    assert read.all == REPLAYED + 20
    # One turn may lie before the other task's, and the next one behind it.
    assert read.most <= 2 * PIECE
