"""Entries of the journal are JSON, and read back as they were."""

import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.stream_journal import (
    AnswerHead,
    JournalEntry,
    TokenAlternatives,
    decode_journal,
    encode_entries,
)

COUNTS = st.integers(0, 2**31 - 1)
LOGPROBS = st.floats(-1e4, 0.0)
ALTERNATIVES = st.builds(
    TokenAlternatives, LOGPROBS, COUNTS, st.lists(st.tuples(COUNTS, LOGPROBS), max_size=2).map(tuple)
)


@st.composite
def entries(draw: st.DrawFn) -> JournalEntry:
    tokens = tuple(draw(st.lists(COUNTS, min_size=1, max_size=4)))
    logprobs = draw(st.just(()) | st.tuples(*[ALTERNATIVES] * len(tokens)))
    return JournalEntry(draw(COUNTS), tokens, draw(st.sampled_from([None, "stop", 'a "quoted" one'])), logprobs)


@given(st.lists(entries(), max_size=3))
def test_entries_read_back_as_they_were(written: list[JournalEntry]) -> None:
    line = encode_entries(written)
    assert "\n" not in line
    assert json.dumps(json.loads(line), separators=(",", ":")) == line
    assert decode_journal(line.encode()) == written


@given(
    st.integers(200, 599),
    st.lists(
        st.tuples(st.from_regex(rb"[a-zA-Z0-9-]+", fullmatch=True), st.from_regex(rb"[ -~\x80-\xff]*", fullmatch=True))
    ),
)
def test_heads_of_answers_read_back_as_they_were(status: int, headers: list[tuple[bytes, bytes]]) -> None:
    line = AnswerHead(status, headers).encode()
    assert line.startswith(b"{")
    assert b"\n" not in line
    assert AnswerHead.decode(line) == AnswerHead(status, headers)


@given(st.binary(max_size=40) | st.text('{}[]",:0159 statusheaders').map(str.encode))
def test_a_head_that_no_engine_writes_is_refused(line: bytes) -> None:
    with suppress(ValueError):
        AnswerHead.decode(line)
