"""The journal of vLLM's streams: the words of the contract, and what is refused of it."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract import stream_journal as contract
from paternoster_operator.engines import vllm_arguments
from paternoster_vllm import continuation
from paternoster_vllm.stream_journal import (
    COMMENT,
    FAILED,
    HAND_OVER,
    JOURNAL,
    MAX_JOURNAL_BYTES,
    RESUME,
    STREAM_ID,
    Head,
    InvalidJournal,
    decode_journal,
    decode_resume,
    encode_entry,
)

HEAD = Head("cmpl-a", 1795792422, "m", (1, 2))
FIRST = HEAD.encode("[[0,null,[3]]]")


def test_the_plugin_says_what_the_contract_says() -> None:
    names = [name.decode() for name in (STREAM_ID, JOURNAL, RESUME)]
    assert names == [name.lower() for name in (contract.STREAM_ID, contract.JOURNAL, contract.RESUME)]
    assert (COMMENT, HAND_OVER, FAILED) == (contract.COMMENT, contract.HAND_OVER, contract.FAILED)
    assert MAX_JOURNAL_BYTES == contract.MAX_JOURNAL_BYTES
    assert decode_resume(contract.Resume(3, 40, "vllm-a").encode().encode()) == (3, 40, "vllm-a")
    assert continuation.GATEWAY_ENV == vllm_arguments.GATEWAY_ENV


@given(st.lists(st.integers(0, 99), max_size=4), st.sampled_from([None, "stop", "length"]))
def test_an_entry_is_one_of_the_contract(tokens: list[int], reason: str | None) -> None:
    entries = contract.decode_journal(encode_entry(tokens, reason).encode())
    assert entries == ([contract.JournalEntry(0, tuple(tokens), reason)] if tokens or reason else [])


def test_a_journal_is_cut_to_the_frames_of_the_client() -> None:
    data = b"\n".join([FIRST, b"[[0,null,[4,5]]]", b'[[0,"stop",[6]]]', b"[]", b"[]"])
    states = [decode_journal(data, frames, 10, 100) for frames in range(1, 6)]
    assert [state.head for state in states] == [HEAD] * 5
    assert [state.tokens for state in states] == [(3,), (3, 4, 5), (3, 4, 5, 6), (3, 4, 5, 6), (3, 4, 5, 6)]
    assert [state.finish_reason for state in states] == [None, None, "stop", "stop", "stop"]
    assert [state.frames_after_finish for state in states] == [0, 0, 0, 1, 2]


def line(**fields: Any) -> bytes:
    document = {"id": "a", "created": 1, "model": "m", "prompt": [1], "entries": [], **fields}
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("data", "frames", "fault"),
    [
        (b"", 1, "not JSON"),
        (FIRST, 0, "1 lines"),
        (FIRST, 2, "1 lines"),
        (FIRST + b"\n[", 2, "not JSON"),
        (b"[" * 100_000, 1, "not JSON"),
        (b"[]", 1, "no object"),
        (line(prompt=[]), 1, "no prompt"),
        (line(prompt=[10]), 1, "vocabulary"),
        (line(prompt=[-1]), 1, "vocabulary"),
        (line(prompt=[True]), 1, "vocabulary"),
        (line(prompt=["1"]), 1, "vocabulary"),
        (line(prompt=[1.0]), 1, "vocabulary"),
        (line(prompt=[1] * 101), 1, "101 of 100|101 tokens of 100"),
        (line(id=1), 1, "lacks id"),
        (line(created="1"), 1, "lacks id"),
        (line(id="x" * 513), 1, "too long"),
        (line(entries=None), 1, "no list"),
        (line(entries=[[1, None, [2]]]), 1, "not .0"),
        (line(entries=[[0, None]]), 1, "not .0"),
        (line(entries=[[0, "abort", [2]]]), 1, "finish reason"),
        (line(entries=[[0, ["stop"], [2]]]), 1, "finish reason"),
        (line(entries=[[0, None, [10]]]), 1, "vocabulary"),
        (line(entries=[[0, "stop", [2]], [0, None, [3]]]), 1, "behind the end"),
        (b" " * (MAX_JOURNAL_BYTES + 1), 1, "at most"),
    ],
)
def test_what_no_vllm_wrote_is_refused(data: bytes, frames: int, fault: str) -> None:
    with pytest.raises(InvalidJournal, match=fault):
        decode_journal(data, frames, vocab_size=10, max_model_len=100)


@given(st.binary(max_size=60), st.integers(0, 3))
def test_any_bytes_are_a_journal_or_refused(data: bytes, frames: int) -> None:
    with suppress(InvalidJournal):
        decode_journal(data, frames, 10, 100)


@pytest.mark.parametrize("value", [b"", b"1 2", b"-1 2 a", b"1 2 a b", b"1" * 10 + b" 2 a", b"1 2 " + b"a" * 65])
def test_a_header_that_no_gateway_sends_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidJournal):
        decode_resume(value)
