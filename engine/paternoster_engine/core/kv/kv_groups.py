"""How many blocks a sequence holds, and which of them the attention windows of its layers release.

Layers are divided into groups of one size and one attention each. A block of the pool holds ``block_size`` tokens of
the layers of one group, so any block serves any group. A block table has a row for each ``block_size`` tokens, and in a
row a block for each group, side by side: entry ``row * count + group``. A layer with a window of ``w`` reads no token
more than ``w - 1`` before the next one, so its group lets older rows go, and the table names block 0 there.

Blocks of 4 tokens, one group that sees everything and one with a window of 6; 17 tokens are computed, and the next one
sees tokens 12 to 17 in the second group:

    row       0   1   2   3   4
    full      1   3   5   7   9
    window    0   0   6   8   10

Rows are released as one is full, so row 2 stays until row 4 is. A model with layers of one kind is one group, and its
table is a plain list of blocks.
"""

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request

ALL_ROWS = 2**62
"""A group without a window needs all rows before."""


class KVGroups:
    """The groups of a model's layers, by their windows; rows are of ``block_size`` tokens each."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.block_size = size = config.block_size
        self.count = len(config.windows)
        self.with_window = [group for group, window in enumerate(config.windows) if window is not None]
        self.windowed = [window is not None for window in config.windows]
        self._behind = [ALL_ROWS if window is None else -(-(window - 1) // size) for window in config.windows]
        """Rows that each group needs before the row of the next token."""
        # A step planned while another one runs does not count that one as computed.
        steps = 2 if config.overlap else 1
        self._decode_rows = self.count_rows(size - 1 + steps)
        """Rows that a decoding sequence holds from that of the next token on."""
        self._chunk_rows = self.count_rows(size - 1 + steps * config.max_batched_tokens)
        """Rows of a sequence while it computes the largest chunks."""

    def count_rows(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def rows_behind(self, group: int) -> int:
        """Rows that ``group`` needs before that of the next token."""
        return self._behind[group]

    def first_row(self, group: int, row: int) -> int:
        """First row that ``group`` needs for tokens in ``row`` and after it."""
        return max(0, row - self._behind[group])

    def first_window_row(self, row: int) -> int:
        """First row within the window, for all groups with one together; ``row`` where there is none."""
        return min((self.first_row(group, row) for group in self.with_window), default=row)

    def end_row(self, group: int, row: int, rows: int) -> int:
        """End of the rows, of ``rows`` in all, that ``group`` needs for one step after another from ``row`` on."""
        return min(rows, self.first_row(group, row) + self._count_most_rows(group, rows))

    def count_known_blocks(self, request: Request) -> int:
        """Blocks that a waiting request needs for all its known tokens and, where it branches, for all sequences."""
        if request.branches is None:
            return self.count_most_blocks(request, request.num_tokens)
        # One that has not branched yet continues in as many ways as it may; the last token sampled is never computed.
        num_known = min(max(request.branches.num_tokens, request.num_prompt + 1), request.most_computed)
        return self._count_branched_blocks(request, request.num_tokens, num_known)

    def count_most_blocks(self, request: Request, num_tokens: int) -> int:
        """Blocks that a request holds at most until it, or each of its sequences, is ``num_tokens`` long.

        Not counting that it may be preempted and then has more to compute at once: see :meth:`count_required_blocks`.
        """
        if request.width > 1:
            return self._count_branched_blocks(request, request.num_prompt, num_tokens)
        return self._count_blocks(
            num_tokens, self.count_rows(request.num_expected) - request.block_table.num_cached_rows
        )

    def count_required_blocks(self, request: Request) -> int:
        """Blocks without which a request cannot be served; the last token sampled is never computed."""
        num_tokens = request.most_computed
        if request.width > 1:
            return self._count_branched_blocks(request, request.num_prompt, num_tokens)
        return self.count_sequence_blocks(num_tokens)

    def count_sequence_blocks(self, num_tokens: int) -> int:
        """Blocks that a sequence of that length holds at most, however it is scheduled."""
        return self._count_blocks(num_tokens, self.count_rows(num_tokens))

    def find_longest_sequence(self, num_blocks: int, max_tokens: int) -> int:
        """The most tokens, up to ``max_tokens``, of a sequence that ``num_blocks`` always suffice for."""
        low, high = 0, max_tokens
        while low < high:
            middle = (low + high + 1) // 2
            if self.count_sequence_blocks(middle) <= num_blocks:
                low = middle
            else:
                high = middle - 1
        return low

    def count_window_tokens(self, num_tokens: int) -> int:
        """Tokens that the groups with a window hold at most, together, of a decoding sequence of that length."""
        limits = [(self._behind[group] + self._decode_rows) * self.block_size for group in self.with_window]
        return sum(min(num_tokens, limit) for limit in limits)

    def _count_blocks(self, num_tokens: int, fresh: int) -> int:
        """Count the blocks of one sequence; ``fresh``: rows that are known and not computed."""
        rows = self.count_rows(num_tokens)
        if not self.with_window:
            return rows * self.count
        return sum(min(rows, self._count_most_rows(group, fresh)) for group in range(self.count))

    def _count_most_rows(self, group: int, fresh: int) -> int:
        """Rows that a group holds at once while ``fresh`` rows, and then single tokens, are computed."""
        return self._behind[group] + min(max(fresh, self._decode_rows), self._chunk_rows)

    def _count_branched_blocks(self, request: Request, common: int, num_tokens: int) -> int:
        """Count the blocks of all sequences of a request, which have the first ``common`` tokens in common."""
        rows = self.count_rows(num_tokens)
        shared = min(common, num_tokens) // self.block_size
        most = [self._count_most_rows(group, rows) for group in range(self.count)]
        return sum(min(shared, limit) + request.width * min(rows - shared, limit) for limit in most)
