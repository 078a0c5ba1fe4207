"""Bodies of ``PATCH /paternoster/limits``, and the keys that open it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract import admin
from paternoster_vllm.keys import LONGEST_FILE, has_valid_key, read_keys
from paternoster_vllm.limits import (
    LARGEST_BODY,
    LONGEST_QUEUE_MILLISECONDS,
    InvalidLimits,
    check_bounds,
    parse_limits,
)

PRESENT = {"capacity": 64, "max_batched_tokens": 2048}


def test_the_longest_queue_is_that_of_our_own_engine() -> None:
    assert LONGEST_QUEUE_MILLISECONDS == admin.LONGEST_QUEUE_MILLISECONDS


@pytest.mark.parametrize("limits", [
    {"live_cap": 1}, {"token_budget": 2048}, {"live_cap": 64, "token_budget": 1}, {"max_queue_milliseconds": 0},
    {"max_queue_milliseconds": 86_400_000},
])  # fmt: skip
def test_limits_within_bounds_pass(limits: dict[str, int]) -> None:
    assert parse_limits(json.dumps(limits).encode()) == limits
    check_bounds(limits, PRESENT)


@pytest.mark.parametrize(
    ("body", "status", "field", "text"),
    [
        (b"", 400, "", "is not JSON"),
        (b"{", 400, "", "is not JSON"),
        (b"[" * 4000, 400, "", "is not JSON"),
        (b"\xff", 400, "", "is not JSON"),
        (b" " * (LARGEST_BODY + 1), 413, "", "at most 4096"),
        (b"[1]", 422, "", "the body is [1]: must be an object with live_cap, token_budget or max_q"),
        (b"{}", 422, "", "the body is {}: must be an object with live_cap, token_budget or max_q"),
        (b'{"cap": 1}', 422, "cap", "'cap' is no limit: must be live_cap, token_budget or max_q"),
        (b'{"live_cap": 0}', 422, "live_cap", "live_cap is 0: must be a whole number of at least 1"),
        (
            b'{"max_queue_milliseconds": -1}',
            422,
            "max_queue_milliseconds",
            "is -1: must be a whole number of at least 0",
        ),
        (b'{"live_cap": true}', 422, "live_cap", "live_cap is True: must be a whole number of at least 1"),
        (b'{"live_cap": 1.0}', 422, "live_cap", "live_cap is 1.0: must be"),
        (b'{"live_cap": "8"}', 422, "live_cap", "live_cap is '8': must be"),
        (b'{"live_cap": NaN}', 422, "live_cap", "live_cap is nan: must be"),
        (b'{"live_cap": 4, "token_budget": null}', 422, "token_budget", "token_budget is None: must be"),
    ],
)
def test_a_wrong_body_is_refused_by_field_value_and_what_is_allowed(
    body: bytes, status: int, field: str, text: str
) -> None:
    with pytest.raises(InvalidLimits) as refused:
        parse_limits(body)
    assert (refused.value.status, refused.value.field) == (status, field)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"live_cap": 65}, "live_cap is 65: must be at most 64, its capacity"),
        ({"live_cap": 1, "token_budget": 2049}, "token_budget is 2049: must be at most 2048, its max_batched_tokens"),
        ({"max_queue_milliseconds": 86_400_001}, "max_queue_milliseconds is 86400001: must be at most 86400000"),
    ],
)
def test_a_limit_above_its_fixed_number_is_refused(limits: dict[str, int], text: str) -> None:
    with pytest.raises(InvalidLimits, match=text):
        check_bounds(limits, PRESENT)


def find_error(body: bytes) -> InvalidLimits | None:
    try:
        check_bounds(parse_limits(body), PRESENT)
    except InvalidLimits as error:
        return error
    return None


@given(st.binary(max_size=2 * LARGEST_BODY))
def test_any_bytes_are_limits_or_a_short_error(body: bytes) -> None:
    error = find_error(body)
    assert error is None or (error.status in (400, 413, 422) and len(str(error)) < 300)


@given(st.dictionaries(st.text(max_size=200), st.integers() | st.text(max_size=3000), min_size=1, max_size=3))
def test_an_echoed_field_or_value_is_shortened(document: dict[str, int | str]) -> None:
    error = find_error(json.dumps(document).encode())
    assert error is None or (len(str(error)) < 300 and len(error.field) <= 60)


def test_keys_are_read_from_a_folder_as_it_is_now(tmp_path: Path) -> None:
    assert read_keys(tmp_path / "missing") == []
    (tmp_path / "..data").mkdir()
    (tmp_path / "gateway").write_text("first\n\n second \n")
    (tmp_path / "long").write_text("x" * (LONGEST_FILE + 1))
    assert read_keys(tmp_path) == ["first", "second"]
    assert read_keys(tmp_path / "gateway") == ["first", "second"]
    (tmp_path / "gateway").write_text("third\n")
    assert read_keys(tmp_path) == ["third"]


@pytest.mark.parametrize(
    ("headers", "valid"),
    [
        ([(b"Authorization", b"Bearer second")], True),
        ([(b"authorization", b"bearer first")], True),
        ([(b"authorization", b"Bearer firs")], False),
        ([(b"authorization", b"Basic first")], False),
        ([(b"authorization", b"first")], False),
        ([(b"authorization", b"Bearer " + b"x" * 5000)], False),
        ([(b"authorization", b"Bearer first"), (b"authorization", b"Bearer first")], False),
        ([(b"x-api-key", b"first")], False),
        ([], False),
    ],
)
def test_one_header_with_one_of_the_keys_opens(headers: list[tuple[bytes, bytes]], valid: bool) -> None:
    assert has_valid_key(headers, ["first", "second"]) is valid
    assert not has_valid_key(headers, [])
