"""Tokens of an answer as its bytes state them, in whatever pieces they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_gateway.call.session import OutputTokens


def count(pieces: list[bytes], *, is_stream: bool) -> int:
    counted = OutputTokens(is_stream=is_stream)
    return sum(counted.feed(piece) for piece in pieces) + counted.count_final()


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 17, "total_tokens": 22}}', 17),
        (b'{"usage":{"input_tokens":5,"output_tokens":3}}', 3),
        (b'{"data": [], "usage": {"prompt_tokens": 5, "total_tokens": 5}}', 0),
        (rb'{"content": "\"completion_tokens\": 9", "usage": {"completion_tokens": 4}}', 4),
        (b'{"usage": {"completion_tokens": 12345678901}}', 0),
        (b'{"usage": {"completion_tokens": -1}}', 0),
        (b"not JSON", 0),
    ],
)
@given(data=st.data())
def test_usage_is_found_in_any_pieces(data: st.DataObject, body: bytes, tokens: int) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(body)))))
    pieces = [body[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert count(pieces, is_stream=False) == tokens


def test_each_event_of_a_stream_is_a_token() -> None:
    assert count([b"data: {}\n\n", b"data: {}\n\ndata: [DONE]\n\n"], is_stream=True) == 3


def test_a_long_answer_is_not_stored() -> None:
    counted = OutputTokens(is_stream=False)
    for _ in range(100):
        counted.feed(b"x" * 10_000)
    assert len(counted._tail) < 10_000
