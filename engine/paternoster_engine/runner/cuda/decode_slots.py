"""Which request has which row of the decode buffers, and what its row lacks: pure bookkeeping of the host."""

from collections.abc import Sequence
from dataclasses import dataclass

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.request import Request

HOST = -1
"""In place of a source row: the host has the token."""


class UnknownToken(ValueError):
    """A row's next input is a token that neither the host has nor the last decode step sampled."""


@dataclass(slots=True)
class DecodeSlot:
    """One row of the next step, and what the device must have before it."""

    row: int
    item: ScheduledRequest
    source: int
    """Row in which the last step sampled this one's input; :data:`HOST` where ``token`` is known."""
    token: int
    column: int
    """Row of the block table that the new token falls into; it is uploaded in each step."""
    blocks: list[int]
    """That row: a block for each group of layers."""
    new_table: bool
    """The whole block table must be uploaded: what the device has there is another request's, or older."""


@dataclass(slots=True)
class _HeldSlot:
    row: int
    blocks: list[int]
    """What the device's table holds."""
    next_start: int
    """Position of the token that the last step samples."""


class DecodeSlots:
    """Requests keep their row from step to step; those beyond the batch's size move into rows that were left.

    So the rows in use are always the first ones, and a step needs no more than its batch has.
    """

    def __init__(self, block_size: int, num_groups: int = 1) -> None:
        self._block_size = block_size
        self._num_groups = num_groups
        self._held: dict[Request, _HeldSlot] = {}

    def assign_slots(self, scheduled: Sequence[ScheduledRequest]) -> list[DecodeSlot]:
        """Rows of ``scheduled``, one token each, in its order; a request that is not in it loses its row.

        Raises :class:`UnknownToken`; no slot is held then.
        """
        before, self._held = self._held, {}
        occupied = {
            slot.row
            for item in scheduled
            if (slot := before.get(item.request)) is not None and slot.row < len(scheduled)
        }
        free = iter(row for row in range(len(scheduled)) if row not in occupied)
        held: dict[Request, _HeldSlot] = {}
        slots = []
        for item in scheduled:
            slot = before.get(item.request)
            source, token = _find_input(item, slot)
            blocks = item.request.block_table.block_ids
            column = item.start // self._block_size
            last = blocks[column * self._num_groups : (column + 1) * self._num_groups]
            if slot is None or slot.row not in occupied:
                slot = _HeldSlot(next(free), blocks.copy(), 0)
                new_table = True
            else:
                # Most often equal, or one row longer, the one that is uploaded anyway.
                new_table = slot.blocks != blocks and [*slot.blocks, *last] != blocks
                if slot.blocks != blocks:
                    slot.blocks = blocks.copy()
            slot.next_start = item.stop
            held[item.request] = slot
            slots.append(DecodeSlot(slot.row, item, source, token, column, last, new_table))
        self._held = held
        return slots

    def sampled_inputs(self, scheduled: Sequence[ScheduledRequest]) -> bool:
        """Whether the last step samples the inputs of all of ``scheduled``."""
        held = ((self._held.get(item.request), item.start) for item in scheduled)
        return all(slot is not None and slot.next_start == start for slot, start in held)

    def clear(self) -> None:
        """Forget all rows, as after a step that failed."""
        self._held.clear()


def _find_input(item: ScheduledRequest, slot: _HeldSlot | None) -> tuple[int, int]:
    """Source row and token id of the item's input."""
    request, start = item.request, item.start
    if start < request.num_tokens:
        return HOST, request.slice_tokens(start, start + 1)[0]
    if slot is None or slot.next_start != start:
        raise UnknownToken(
            f"request {request.request_id!r} is scheduled at position {start} and knows {request.num_tokens} tokens: "
            "the token there must be known, or be sampled by the decode step before"
        )
    return slot.row, 0
