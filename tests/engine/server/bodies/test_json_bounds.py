"""What a JSON text costs is known before anything is built of it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_http import json_bounds
from paternoster_http.json_bounds import MAX_DEPTH, MAX_DIGITS, MAX_VALUES, JsonTooLarge, bounded_json, count_values

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


def _count(value: Any) -> int:
    """Values and names, an empty list or object counting twice."""
    if isinstance(value, dict):
        return 1 + (sum(1 + _count(item) for item in value.values()) or 1)
    if isinstance(value, list):
        return 1 + (sum(map(_count, value)) or 1)
    return 1


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
@settings(max_examples=50)
def test_values_and_names_are_counted(value: Any, ascii: bool, indent: int | None) -> None:
    data = json.dumps(value, ensure_ascii=ascii, indent=indent).encode("utf-8", "surrogatepass")
    assert count_values(data) == _count(value)


@given(VALUES)
@settings(max_examples=30)
def test_what_is_within_the_bounds_is_read_as_it_is(value: Any) -> None:
    assert bounded_json(json.dumps(value).encode()) == json.loads(json.dumps(value))


@given(st.binary())
def test_no_bytes_fail(data: bytes) -> None:
    assert count_values(data) >= 1


@pytest.mark.parametrize("item", ["1", '""', "{}", "[]", '{"a":1}', r'"\\"', r'"\""', "null"])
def test_more_values_than_allowed_are_refused(item: str) -> None:
    each = _count(json.loads(item))
    most = (MAX_VALUES - 1) // each
    assert count_values(_several(item, most)) <= MAX_VALUES
    with pytest.raises(JsonTooLarge, match=f"The body has more than {MAX_VALUES} values and names"):
        count_values(_several(item, most + 2))


def test_the_depth_is_bounded() -> None:
    assert count_values(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH) == MAX_DEPTH + 1
    with pytest.raises(JsonTooLarge, match=f"deeper than {MAX_DEPTH} arrays and objects"):
        count_values(b'{"a":' * (MAX_DEPTH + 1))


def test_marks_in_texts_count_for_nothing() -> None:
    text = "[" * (MAX_DEPTH + 1) + "," * MAX_VALUES + "9" * (MAX_DIGITS + 1) + '\\"' * 9
    assert count_values(json.dumps([text]).encode()) == 2


def test_digits_of_a_number_are_bounded() -> None:
    assert bounded_json(b"9" * MAX_DIGITS) == 10**MAX_DIGITS - 1
    with pytest.raises(JsonTooLarge, match=f"The seed has a number of more than {MAX_DIGITS} digits"):
        count_values(b"[1" + b"0" * MAX_DIGITS + b"]", "The seed")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le"])
def test_other_encodings_are_no_json(encoding: str) -> None:
    """Their quotation marks and backslashes are other bytes than those that are counted."""
    with pytest.raises(ValueError, match=r"utf-8|Expecting|property name"):
        bounded_json('{"a": 1}'.encode(encoding))


def test_nothing_is_parsed_beyond_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_bounds.json, "loads", lambda text: pytest.fail("it was parsed"))
    with pytest.raises(JsonTooLarge):
        bounded_json(_several("{}", MAX_VALUES))


def _several(item: str, count: int) -> bytes:
    return f"[{','.join([item] * count)}]".encode()
