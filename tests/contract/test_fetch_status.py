"""What ``pull`` says of a download is what the operator reads, and nothing else is taken for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.fetch_status import LONGEST_MESSAGE, FetchStatus, clip_message

STATUSES = st.builds(
    FetchStatus,
    state=st.sampled_from(["listing", "waiting", "downloading", "ready", "failed"]),
    done=st.integers(0, 2**50),
    total=st.integers(0, 2**50),
    rate=st.floats(0, 1e12),
    reason=st.none() | st.from_regex(r"[A-Z][A-Za-z]{0,20}", fullmatch=True),
    message=st.text(),
    transient=st.booleans(),
)


@given(STATUSES)
def test_what_is_written_is_read(status: FetchStatus) -> None:
    line = status.to_json_line()
    assert "\n" not in line
    assert FetchStatus.read(line) == status


@given(st.text())
def test_a_message_is_cut_to_bytes(message: str) -> None:
    clipped_message = clip_message(message * 300)
    assert (message * 300).startswith(clipped_message)
    assert len(clipped_message.encode()) <= LONGEST_MESSAGE


@pytest.mark.parametrize(
    "line",
    [
        "", "boom", "{}", "[]", '{"state": "done"}', '{"state": "failed", "reason": "two words"}',
        '{"state": "failed", "reason": "' + "X" * 65 + '"}', '{"state": "downloading", "done": -1}',
        '{"state": "downloading", "rate": NaN}', '{"state": "downloading", "done": 1',
    ],
)  # fmt: skip
def test_other_lines_are_not_believed(line: str) -> None:
    assert FetchStatus.read(line) is None


def test_what_a_later_release_adds_is_passed_over() -> None:
    status = FetchStatus.read('{"state": "failed", "reason": "NoSpace", "message": "full", "since": 3}')
    assert status is not None
    assert (status.reason, status.message) == ("NoSpace", "full")
