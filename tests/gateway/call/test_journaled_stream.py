"""The journal is taken out of a stream alike in whatever pieces its bytes come."""

from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.stream_journal import COMMENT, DRAINING, HAND_OVER, RESUME, Resume
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.journaled_stream import MAX_CONTINUATIONS, JournaledStream
from paternoster_http.open_requests import open_request_alone

LINES = st.sampled_from([b"[[0,null,[5]]]", b"[[1,null,[7,8]],[0,null,[9]]]", b'[[0,"stop",[2]]]'])
DATA = st.sampled_from([b"data: {}", b"event: a\ndata: {}", b"data: [DONE]", b"data: {\ndata: }"])
FRAMES = st.lists(st.tuples(st.none() | LINES, DATA), min_size=1, max_size=8)
CALL = Call("/v1/chat/completions", "m", b"{}", {})


@given(frames=FRAMES, special=st.none() | st.sampled_from([DRAINING, HAND_OVER]), data=st.data())
def test_frames_and_journal_do_not_depend_on_how_bytes_are_cut(
    frames: list[tuple[bytes | None, bytes]], special: bytes | None, data: st.DataObject
) -> None:
    whole = b"".join((b"" if line is None else COMMENT + line + b"\n") + frame + b"\n\n" for line, frame in frames)
    whole += b"" if special is None else special + b"\n\n"
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=6)))
    stream = JournaledStream("fp_a", open_request_alone())
    got = [stream.feed(whole[first:last]) for first, last in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert b"".join(got) == b"".join(frame + b"\n\n" for _, frame in frames)
    assert (stream.num_frames, stream.replica_drains, stream.handed_over) == (
        len(frames), special == DRAINING, special == HAND_OVER,
    )  # fmt: skip
    resumed = stream.build_resumption(CALL)
    journal = b"\n".join(line for line, _ in frames if line is not None)
    assert (resumed.body, resumed.journal) == (b"{}", journal)
    assert resumed.headers == {RESUME: Resume(len(frames), len(journal), "fp_a").encode()}


def test_nothing_follows_a_hand_over() -> None:
    stream = JournaledStream("fp_a", open_request_alone())
    assert stream.feed(HAND_OVER + b"\n\n") == b""
    assert stream.feed(COMMENT + b"[[0,null,[5]]]\ndata: {}\n\n") == b""
    assert stream.num_frames == 0


def test_a_stream_goes_on_as_long_as_its_replicas_send_frames() -> None:
    stream = JournaledStream("fp_a", open_request_alone())
    for _ in range(3 * MAX_CONTINUATIONS):
        assert stream.feed(COMMENT + b"[[0,null,[5]]]\ndata: {}\n\n")
        assert stream.can_continue
        stream.switch_replica()
    for _ in range(MAX_CONTINUATIONS - 1):
        assert stream.can_continue
        stream.switch_replica()
    assert not stream.can_continue
