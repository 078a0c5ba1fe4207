"""What is encoded is decoded, however it is cut; anything else raises one error."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.text_chains.stream import (
    MAX_FRAME_BYTES,
    Changes,
    FrameReader,
    Heartbeat,
    Hello,
    InvalidStream,
    Snapshot,
    encode_frame,
)

DIGESTS = st.integers(0, 2**64 - 1)
STORED = st.dictionaries(DIGESTS, st.integers(0, 2**32 - 1), max_size=8)
HELLO = st.builds(
    Hello,
    version=st.integers(1, 9),
    instance=st.binary(min_size=16, max_size=16).map(bytes.hex),
    resumes=st.booleans(),
    model=st.text(min_size=1, max_size=20),
    isolates_tenants=st.booleans(),
    block_size=st.integers(1, 2**20),
)
FRAMES = (
    HELLO
    | st.builds(Snapshot, DIGESTS, STORED, st.booleans())
    | st.builds(Changes, DIGESTS, STORED, st.lists(DIGESTS, max_size=8).map(tuple), st.booleans())
    | st.builds(Heartbeat, DIGESTS)
)


@given(frames=st.lists(FRAMES, max_size=6), size=st.integers(1, 200))
def test_frames_survive_however_they_are_cut(frames, size):
    data, reader = b"".join(map(encode_frame, frames)), FrameReader()
    read = [frame for start in range(0, len(data), size) for frame in reader.feed(data[start : start + size])]
    assert read == frames


@given(frame=FRAMES, place=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 10_000))
def test_damaged_frames_raise_one_error(frame, place, byte, cut):
    data = bytearray(encode_frame(frame))
    data[place % len(data)] = byte
    with contextlib.suppress(InvalidStream):
        list(FrameReader().feed(bytes(data[: cut % (len(data) + 1)]) + b"\3\0\0\0\2ab"))


@given(data=st.binary(max_size=300), kind=st.integers(0, 6))
def test_garbage_raises_one_error(data, kind):
    for each in (data, bytes([kind]) + len(data).to_bytes(4, "big") + data):
        with contextlib.suppress(InvalidStream):
            list(FrameReader().feed(each))


def test_a_frame_of_an_unknown_type_is_skipped():
    data = b"\x63\0\0\0\2ab" + encode_frame(Heartbeat(7))
    assert list(FrameReader().feed(data)) == [Heartbeat(7)]


@pytest.mark.parametrize(
    "data",
    [
        b"\2" + (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        b"\2\0\0\0\1x",
        b"\3\0\0\0\x0d" + bytes(9) + b"\xff\xff\xff\xff",
        b"\4\0\0\0\1x",
        b"\1\0\0\0\2{}",
    ],
)
def test_what_is_refused(data):
    with pytest.raises(InvalidStream):
        list(FrameReader().feed(data))


def test_a_frame_that_is_too_large_is_not_encoded():
    with pytest.raises(ValueError, match="at most"):
        encode_frame(Changes(1, dict.fromkeys(range(100000), 1)))
