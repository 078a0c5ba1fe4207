"""What must be true of a scheduler's requests between two steps."""

from collections.abc import Collection, Sequence

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request, RequestStatus


def check_requests(
    config: SchedulerConfig, requests: Collection[Request], running: Sequence[Request], waiting: Sequence[Request]
) -> None:
    """Raise ``AssertionError`` unless each of ``requests``, with all its beams, either runs or waits, and holds just
    what that allows.
    """
    assert len(running) <= config.max_num_seqs
    sequences = [sequence for request in requests for sequence in request.sequences]
    assert {id(r) for r in sequences} == {id(r) for r in [*running, *waiting]}
    assert len(sequences) == len(running) + len(waiting)
    for request in running:
        assert request.status is RequestStatus.RUNNING
        assert 0 <= request.num_cached <= request.num_computed <= request.num_expected
        assert request.num_computed <= len(request.block_ids) * config.block_size
        assert not request.host_block_ids
    for request in waiting:
        assert request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        assert request.num_computed == 0
        assert not request.block_ids
        assert request.claimed_key is None
        assert request.leader is request
        assert len(request.sequences) == 1
        assert bool(request.host_block_ids) == (request.num_swapped > 0)
