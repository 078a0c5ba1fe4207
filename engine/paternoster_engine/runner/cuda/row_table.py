"""Which request sits in which row of the decode buffers, and what its row lacks: pure bookkeeping of the host."""

from collections.abc import Sequence
from dataclasses import dataclass

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.request import Request

HOST = -1
"""In place of a source row: the host knows the token."""


class UnknownToken(ValueError):
    """A row's next input is a token that neither the host knows nor the last decode step sampled."""


@dataclass(slots=True)
class Placed:
    """One row of the next step, and what must be told to the device before it."""

    row: int
    item: ScheduledRequest
    source: int
    """Row in which the last step sampled this one's input; :data:`HOST` where ``token`` is known."""
    token: int
    column: int
    """Entry of the block table that the new token falls into; it is told anew in each step."""
    block: int
    new_table: bool
    """The whole block table must be told: what the device has there is another request's, or older."""


@dataclass(slots=True)
class _Seat:
    row: int
    blocks: list[int]
    """What the device's table holds."""
    next_start: int
    """Position of the token that the last step samples."""


class RowTable:
    """Requests keep their row from step to step; those beyond the batch's size move into rows that were left.

    So the rows in use are always the first ones, and a step needs no more than its batch has.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._seats: dict[Request, _Seat] = {}

    def place(self, scheduled: Sequence[ScheduledRequest]) -> list[Placed]:
        """Rows of ``scheduled``, one token each, in its order; whoever is not in it loses its row.

        Raises :class:`UnknownToken`; the table is then empty.
        """
        before, self._seats = self._seats, {}
        kept = {
            seat.row
            for item in scheduled
            if (seat := before.get(item.request)) is not None and seat.row < len(scheduled)
        }
        free = iter(row for row in range(len(scheduled)) if row not in kept)
        seats: dict[Request, _Seat] = {}
        placed = []
        for item in scheduled:
            seat = before.get(item.request)
            source, token = _input(item, seat)
            blocks = item.request.block_ids
            column = item.start // self._block_size
            if seat is None or seat.row not in kept:
                seat = _Seat(next(free), blocks.copy(), 0)
                new_table = True
            else:
                # Most often equal, or one block longer, the one that the step is told of anyway.
                new_table = seat.blocks != blocks and [*seat.blocks, blocks[column]] != blocks
                if seat.blocks != blocks:
                    seat.blocks = blocks.copy()
            seat.next_start = item.stop
            seats[item.request] = seat
            placed.append(Placed(seat.row, item, source, token, column, blocks[column], new_table))
        self._seats = seats
        return placed

    def sampled_inputs(self, scheduled: Sequence[ScheduledRequest]) -> bool:
        """Whether the last step samples the inputs of all of ``scheduled``."""
        seats = ((self._seats.get(item.request), item.start) for item in scheduled)
        return all(seat is not None and seat.next_start == start for seat, start in seats)

    def clear(self) -> None:
        """Forget all rows, as after a step that failed."""
        self._seats.clear()


def _input(item: ScheduledRequest, seat: _Seat | None) -> tuple[int, int]:
    """Source row and token id of the item's input."""
    request, start = item.request, item.start
    if start < request.num_tokens:
        return HOST, request.tokens(start, start + 1)[0]
    if seat is None or seat.next_start != start:
        raise UnknownToken(
            f"request {request.request_id!r} is scheduled at position {start} and knows {request.num_tokens} tokens: "
            "the token there must be known, or be sampled by the decode step before"
        )
    return seat.row, 0
