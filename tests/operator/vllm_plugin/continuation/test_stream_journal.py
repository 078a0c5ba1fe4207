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
    NOT_CONTINUED,
    RESUME,
    STREAM_ID,
    ChoiceOutput,
    InvalidJournal,
    Progress,
    UnsupportedCall,
    decode_journal,
    decode_resume,
    decode_stream_id,
    encode_output,
    encode_prompt,
    encode_unsupported,
)

PROMPT_LINE = b'[{"prompt": [1, 2]}, [[0,null,null,[3],[]]]]'


def test_the_plugin_says_what_the_contract_says() -> None:
    constants = contract.STREAM_ID, contract.JOURNAL, contract.RESUME, contract.NOT_CONTINUED
    names = [name.decode() for name in (STREAM_ID, JOURNAL, RESUME, NOT_CONTINUED)]
    assert names == [name.lower() for name in constants]
    assert (COMMENT, HAND_OVER, FAILED) == (contract.COMMENT, contract.HAND_OVER, contract.FAILED)
    assert MAX_JOURNAL_BYTES == contract.MAX_JOURNAL_BYTES
    assert decode_stream_id(contract.StreamId("0a" * 16, 7).encode().encode()) == ("0a" * 16, 7)
    assert decode_resume(contract.Resume(3, 40, "vllm-a").encode().encode()) == (3, 40, "vllm-a")
    assert continuation.GATEWAY_ENV == vllm_arguments.GATEWAY_ENV


LOGPROBS = st.floats(max_value=0, width=32, allow_nan=False)
ALTERNATIVES = st.tuples(st.integers(0, 98), LOGPROBS, st.integers(0, 5))


@st.composite
def outputs(draw: st.DrawFn) -> tuple[ChoiceOutput, ...]:
    tokens = tuple(draw(st.lists(st.integers(0, 98), max_size=3)))
    logprobs: tuple[Any, ...] = ()
    if draw(st.booleans()):
        logprobs = tuple(
            ((token, draw(LOGPROBS), draw(st.integers(0, 5))), *draw(st.lists(ALTERNATIVES, max_size=2)))
            for token in tokens
        )
    return (ChoiceOutput(draw(st.integers(0, 3)), tokens, None, draw(st.sampled_from([None, 5, "é"])), logprobs),)


@given(st.lists(outputs(), max_size=4))
def test_what_is_written_is_read(made: list[tuple[ChoiceOutput, ...]]) -> None:
    """Log probabilities to the last bit of the 32 that vLLM computes, also those of tokens that cannot be."""
    line = f"[{','.join([encode_prompt([1, 2]), *map(encode_output, made)])}]"
    assert decode_journal(line.encode(), 1, 99, 100) == Progress((1, 2), tuple(made))


def test_a_journal_is_cut_to_the_frames_of_the_client() -> None:
    data = b"\n".join([b"[]", PROMPT_LINE, b"[[[1,null,null,[4,5],[]]],[[0,null,null,[7],[]]]]", b"[]"])
    states = [decode_journal(data, frames, 10, 100) for frames in range(1, 5)]
    assert [state.prompt for state in states] == [(), (1, 2), (1, 2), (1, 2)]
    assert [state.tokens_of(0) for state in states] == [[], [3], [3, 7], [3, 7]]
    assert [state.tokens_of(1) for state in states] == [[], [], [4, 5], [4, 5]]
    assert [len(state.outputs) for state in states] == [0, 1, 3, 3]


def line(*outputs: Any, prompt: Any = (1,)) -> bytes:
    return json.dumps([{"prompt": prompt}, *outputs]).encode()


@pytest.mark.parametrize(
    ("data", "frames", "fault"),
    [
        (b"", 1, "not JSON"),
        (PROMPT_LINE, 0, "1 lines"),
        (PROMPT_LINE, 2, "1 lines"),
        (PROMPT_LINE + b"\n[", 2, "not JSON"),
        (b"[" * 100_000, 1, "not JSON"),
        (b"{}", 1, "no list"),
        (b"[1]", 1, "no list"),
        (b"[[[0,null,null,[3],[]]]]", 1, "no prompt"),
        (PROMPT_LINE + b"\n" + PROMPT_LINE, 2, "more than one prompt"),
        (line(prompt=[10]), 1, "vocabulary"),
        (line(prompt=[-1]), 1, "vocabulary"),
        (line(prompt=[True]), 1, "vocabulary"),
        (line(prompt=["1"]), 1, "vocabulary"),
        (line(prompt=[1.0]), 1, "vocabulary"),
        (line(prompt=None), 1, "vocabulary"),
        (line([[0, None, None, [2] * 100, []]]), 1, "101 tokens of 100"),
        (line([[-1, None, None, [2], []]]), 1, "not .choice"),
        (line([[2**20, None, None, [2], []]]), 1, "not .choice"),
        (line([[True, None, None, [2], []]]), 1, "not .choice"),
        (line([[0, None, [2]]]), 1, "not .choice"),
        (line([[0, "abort", None, [2], []]]), 1, "finish reason"),
        (line([[0, ["stop"], None, [2], []]]), 1, "finish reason"),
        (line([[0, "stop", 1.5, [2], []]]), 1, "stop reason"),
        (line([[0, "stop", "a" * 5000, [2], []]]), 1, "stop reason"),
        (line([[0, None, None, [10], []]]), 1, "vocabulary"),
        (line([[0, None, None, [2], [[[3, -0.5, 1]]]]]), 1, "not those of its tokens"),
        (line([[0, None, None, [2], [[]]]]), 1, "no log probability"),
        (line([[0, None, None, [2], [[[2, "a", 1]]]]]), 1, "not .token"),
        (line([[0, None, None, [2], [[[2, -1e300, 1]]]]]), 1, "32 bits"),
        (line([[0, None, None, [2], [[[2, -0.5, -1]]]]]), 1, "rank"),
        (line([[0, None, None, [2], [[[11, -0.5, 1]]]]]), 1, "vocabulary"),
        (line([[0, "stop", None, [2], []]], [[0, None, None, [3], []]]), 1, "behind the end"),
        (b" " * (MAX_JOURNAL_BYTES + 1), 1, "at most"),
    ],
)
def test_what_no_vllm_wrote_is_refused(data: bytes, frames: int, fault: str) -> None:
    with pytest.raises(InvalidJournal, match=fault):
        decode_journal(data, frames, vocab_size=10, max_model_len=100)


@pytest.mark.parametrize(
    ("name", "found"), [("bad_words", "bad_words"), ("a\r\nX-Key: b", "something unknown"), (5, "something unknown")]
)
def test_what_is_not_continued_is_named_in_a_header(name: Any, found: str) -> None:
    data = f"[{encode_unsupported(name)}]".encode()
    with pytest.raises(UnsupportedCall, match=f"^{found}$"):
        decode_journal(data, 1, 10, 100)


@given(st.binary(max_size=60), st.integers(0, 3))
def test_any_bytes_are_a_journal_or_refused(data: bytes, frames: int) -> None:
    with suppress(InvalidJournal):
        decode_journal(data, frames, 10, 100)


@pytest.mark.parametrize("value", [b"", b"1 2", b"-1 2 a", b"1 2 a b", b"1" * 10 + b" 2 a", b"1 2 " + b"a" * 65])
def test_a_header_that_no_gateway_sends_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidJournal):
        decode_resume(value)
