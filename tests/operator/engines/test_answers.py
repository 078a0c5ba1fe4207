"""What hostile engines answer: read in bounded memory and linear time, and whatever is wrong with it is a fault."""

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operator.engines.test_openai_stats import RECORDED as LLAMA_CPP
from tests.operator.engines.test_sglang import exposition, info
from tests.operator.engines.test_vllm_stats import METRICS, REPORT
from tests.operator.engines.test_vllm_without_plugin import VERSION
from tests.security.test_engine_lies import SOUND

from paternoster_contract.stats import EngineStats
from paternoster_operator.engines import answers as answers_module
from paternoster_operator.engines.adapter import EngineAdapter, RuntimeType, StatsUnavailable
from paternoster_operator.engines.answers import (
    LONGEST_SAMPLE,
    LONGEST_SAMPLES,
    MAX_SAMPLES,
    MAX_VALUES,
    Sample,
    SampleFilter,
    read_object,
    read_samples,
)
from paternoster_operator.engines.catalogue import ADAPTERS, TARGET_ADAPTERS
from paternoster_operator.plausible import find_implausible

NAMES = ("a:total", "a:total_sum")
OWN = json.dumps({**SOUND, "state": "ready"}).encode()
SOUND_ANSWERS: Mapping[RuntimeType, Mapping[str, bytes]] = {
    RuntimeType.PATERNOSTER: {"/stats": OWN},
    RuntimeType.VLLM: {
        "/paternoster/limits": json.dumps(REPORT).encode(), "/metrics": METRICS, "/version": VERSION,
    },
    RuntimeType.SGLANG: {"/metrics": exposition(), "/server_info": info()},
    RuntimeType.OPENAI: {"/metrics": LLAMA_CPP},
}  # fmt: skip
"""Answers by path, of each type that the catalogue has."""


def list_readers() -> Iterator[tuple[EngineAdapter, int]]:
    """Every adapter with the number of each answer that it reads."""
    for adapter in {id(each): each for each in (*ADAPTERS.values(), *TARGET_ADAPTERS.values())}.values():
        for number in range(len(adapter.stats_requests)):
            yield adapter, number


def parse_with(adapter: EngineAdapter, number: int, answer: bytes) -> EngineStats | None:
    """The stats where answer ``number`` is ``answer`` and all others are sound; None where they are refused."""
    sound = [SOUND_ANSWERS[adapter.kind.type][request.path] for request in adapter.stats_requests]
    try:
        return adapter.parse_stats([*sound[:number], answer, *sound[number + 1 :]], 5.0)
    except StatsUnavailable:
        return None


def sound_answer(adapter: EngineAdapter, number: int) -> bytes:
    return SOUND_ANSWERS[adapter.kind.type][adapter.stats_requests[number].path]


READERS = list(list_readers())
EVERY_READER = pytest.mark.parametrize(
    ("adapter", "number"), READERS, ids=[f"{type(a).__name__}-{a.stats_requests[n].path}" for a, n in READERS]
)
TOKENS = (
    "9" * 400, "9" * 5000, "1e308", "-1e308", "1e-320", "NaN", "+Inf", "-0", "0.5", '"x"', "null", "true", "[]", "{}",
    "[" * 60_000, '{"a":' * 60_000, '"' + "x" * 9000 + '"', "1_0", "\u0663", "",
)  # fmt: skip
"""In place of a number of a sound answer."""


@EVERY_READER
@given(data=st.data())
def test_whatever_replaces_a_number_is_read_or_refused(adapter: EngineAdapter, number: int, data: Any) -> None:
    text = sound_answer(adapter, number).decode()
    for _ in range(data.draw(st.integers(1, 3))):
        found = data.draw(st.sampled_from(list(re.finditer(r"-?[0-9][0-9.e+]*|\+Inf|$", text))))
        text = text[: found.start()] + data.draw(st.sampled_from(TOKENS)) + text[found.end() :]
    stats = parse_with(adapter, number, text.encode())
    if stats is not None:
        assert all(math.isfinite(value) for value in stats.model_dump().values() if isinstance(value, float))
        find_implausible(stats, stats, 5.0, capacity=None, queue=1024)


@EVERY_READER
@given(answer=st.binary(max_size=200) | st.sampled_from([token.encode() for token in TOKENS]))
def test_whatever_replaces_an_answer_is_refused(adapter: EngineAdapter, number: int, answer: bytes) -> None:
    assert parse_with(adapter, number, answer) is None


@EVERY_READER
def test_lines_of_a_sound_answer_may_come_any_number_of_times(adapter: EngineAdapter, number: int) -> None:
    request, text = adapter.stats_requests[number], sound_answer(adapter, number)
    if request.samples:
        assert parse_with(adapter, number, text) is not None
        largest = re.sub(rb"(?m) [0-9.e+-]+$", b" 9007199254740992", text)
        assert parse_with(adapter, number, largest * 2) is None, "a sum of what each may be"
        assert parse_with(adapter, number, text * 1000) is None


@pytest.mark.parametrize(
    "line",
    [
        b"a:total{%s} 1" % b",".join(b'l%d="x"' % i for i in range(300_000)),
        b"a:total{%s} 1" % (b" " * 100_000),
        b"a:total " + b"9" * 10_000,
    ],
    ids=["300,000 labels", "blanks", "digits"],
)
def test_a_long_line_is_refused_by_its_length(line: bytes) -> None:
    sample_filter = SampleFilter(NAMES)
    with pytest.raises(StatsUnavailable, match=f"a:total has a sample of more than {LONGEST_SAMPLE} bytes"):
        for start in range(0, len(line), 2**12):
            sample_filter.feed(line[start : start + 2**12])
    assert start <= LONGEST_SAMPLE, "before the rest of it was read"


def test_a_long_line_of_another_name_is_left_out() -> None:
    assert list(read_samples(b"other{" + b"x" * 10**6 + b"} 1\na:total 2\n", NAMES)) == [Sample("a:total", {}, 2.0)]


@pytest.mark.parametrize(
    "text", [b"a:total 1\n" * (MAX_SAMPLES + 1), (b'a:total{l="%s"} 1\n' % (b"x" * 8000)) * 40], ids=["lines", "bytes"]
)
def test_more_samples_than_engines_have_are_refused(text: bytes) -> None:
    with pytest.raises(StatsUnavailable, match=f"at most {MAX_SAMPLES} samples, {LONGEST_SAMPLES} bytes"):
        list(read_samples(text, NAMES))


@given(
    lines=st.lists(
        st.sampled_from(
            [b"a:total 1", b'a:total_sum{le="1"} 2', b"# HELP a:total x", b"a:totals 3", b"", b"b a:total 4"]
        )
    ),
    cuts=st.lists(st.integers(0, 200)),
)
def test_pieces_make_no_difference(lines: Collection[bytes], cuts: Collection[int]) -> None:
    text, sample_filter = b"\n".join(lines), SampleFilter(NAMES)
    at = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in pairwise(at):
        sample_filter.feed(text[start:end])
    assert sample_filter.finish().split(b"\n")[1:] == [
        line for line in lines if line.startswith((b"a:total ", b"a:total_sum{"))
    ]


def test_labels_are_read_as_prometheus_writes_them() -> None:
    text = rb"""a:total{ model_name="a\\n\"}, b=\"\n" , le="+Inf",} 1.5e3 1700000000000""" + b"\r\na:total_sum{} 0\n"
    assert list(read_samples(text, NAMES)) == [
        Sample("a:total", {"model_name": 'a\\n"}, b="\n', "le": "+Inf"}, 1500.0), Sample("a:total_sum", {}, 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        b'a:total{="a"} 1',
        b'a:total{l="a} 1',
        b"a:total{l=a} 1",
        b"a:total {} 1",
        b"a:total 1_0",
        b"a:total 1 2 3",
        b'a:total{a="b"c="d"} 1',
        b"a:total ",
    ],
)
def test_what_is_no_sample_is_a_fault(line: bytes) -> None:
    with pytest.raises(StatsUnavailable, match="cannot be parsed"):
        list(read_samples(line, NAMES))


def list_repeats(parsed: Any) -> Iterator[Any]:
    """Every repetition in a parsed regular expression that may be of any length."""
    for operation, argument in parsed:
        if operation in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT):
            if argument[1] is _constants.MAXREPEAT:
                yield operation
            yield from list_repeats(argument[2])
        elif operation is _constants.SUBPATTERN:
            yield from list_repeats(argument[-1])
        elif operation is _constants.BRANCH:
            for each in argument[1]:
                yield from list_repeats(each)
        elif operation is _constants.ATOMIC_GROUP:
            yield from list_repeats(argument)


def test_no_repetition_gives_back_what_it_took() -> None:
    """Only then a match takes a time that is linear in the text, whatever the text."""
    patterns = [value for value in vars(answers_module).values() if isinstance(value, re.Pattern)]
    patterns += [answers_module._compile_lines(frozenset(NAMES))]
    repeats = [each for pattern in patterns for each in list_repeats(_parser.parse(pattern.pattern))]
    assert len(patterns) == 3
    assert len(repeats) > 10
    assert set(repeats) == {_constants.POSSESSIVE_REPEAT}


def test_a_document_of_too_many_values_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", None)
    with pytest.raises(StatsUnavailable, match=rf"/version has \d+ values and names: at most {MAX_VALUES}"):
        read_object(b"[" + b"{}," * MAX_VALUES + b"{}]", "/version")
    with pytest.raises(StatsUnavailable, match="/version is nested deeper than 200"):
        read_object(b"[" * 60_000, "/version")
