"""Rows of the decode buffers against a device that only gets what changed in the table."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.runner.cuda.decode_slots import HOST, DecodeSlots, UnknownToken

BLOCK_SIZE = 4


def request(name: str, tokens: int, blocks: list[int]) -> Request:
    return Request(
        RequestSpec(name, list(range(tokens)), SamplingParams(max_tokens=99)), block_table=BlockTable(blocks)
    )


def item(request: Request, start: int) -> ScheduledRequest:
    return ScheduledRequest(request, start, 1, samples=True)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_device_knows_every_table_and_every_token(data: st.DataObject) -> None:
    """Requests come, go, skip steps, grow and lose their blocks at random."""
    table, fresh = DecodeSlots(BLOCK_SIZE), iter(range(1, 100_000))
    tables: dict[int, list[int]] = {}
    """What each row of the device's block tables holds."""
    living: list[Request] = []
    for _ in range(data.draw(st.integers(1, 12))):
        for _ in range(data.draw(st.integers(0, 3))):
            tokens = data.draw(st.integers(1, 20))
            count = -(-tokens // BLOCK_SIZE)
            living.append(request(str(next(fresh)), tokens, [next(fresh) for _ in range(count)]))
        for one in living:
            if data.draw(st.integers(0, 9)) == 0:
                # Preempted and resumed between two steps, elsewhere.
                one.block_table.block_ids = [next(fresh) for _ in one.block_table.block_ids]
            if one.num_tokens > len(one.block_table.block_ids) * BLOCK_SIZE:
                one.block_table.block_ids.append(next(fresh))
        living = [one for one in living if data.draw(st.integers(0, 4))]
        running = data.draw(st.permutations([one for one in living if data.draw(st.integers(0, 4))]))
        slots = table.assign_slots([item(one, one.num_tokens - 1) for one in running])

        assert sorted(slot.row for slot in slots) == list(range(len(running)))
        for slot, one in zip(slots, running, strict=True):
            assert slot.source == HOST
            assert slot.token == one.num_tokens - 1
            device_row = tables.setdefault(slot.row, [])
            if slot.new_table:
                device_row[:] = one.block_table.block_ids
            device_row[slot.column : slot.column + 1] = [slot.blocks[0]]
            assert device_row[: len(one.block_table.block_ids)] == one.block_table.block_ids
        for one in running:
            one.output.append(one.num_tokens)


def test_a_token_in_flight_is_found_in_its_row() -> None:
    """The middle one of three leaves; the last takes its row, and its input lies where it was sampled."""
    a, b, c = (request(name, 3, [number]) for number, name in enumerate("abc", start=1))
    table = DecodeSlots(BLOCK_SIZE)
    table.assign_slots([item(one, 2) for one in (a, b, c)])
    slots = table.assign_slots([item(c, 3), item(a, 3)])
    assert [(slot.row, slot.source, slot.new_table) for slot in slots] == [(1, 2, True), (0, 0, False)]


def test_a_token_that_nobody_has() -> None:
    one = request("late", 3, [1, 2])
    table = DecodeSlots(BLOCK_SIZE)
    table.assign_slots([item(one, 2)])
    with pytest.raises(UnknownToken, match="'late' is scheduled at position 4 and knows 3 tokens"):
        table.assign_slots([item(one, 4)])
    with pytest.raises(UnknownToken):
        table.assign_slots([item(one, 3)])
