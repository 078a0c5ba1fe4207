"""Requests that begin with the blocks of a running request with the same prompt."""

from typing import NamedTuple

from paternoster_engine.core.kv.kv_cache import KVCache
from paternoster_engine.core.request import Request, RequestStatus


class Fork(NamedTuple):
    """What a request copies from a running request with the same prompt.

    All of the prompt but its last token, which each request computes to sample from.
    """

    donor: Request
    num_tokens: int

    @classmethod
    def find(cls, request: Request, num_cached: int, kv: KVCache) -> "Fork | None":
        """None without a donor that runs, or with nothing to gain over ``num_cached`` tokens.

        A request with several sequences is no donor: its last block may be a copy that is not made yet. Nor is one
        whose windows have released what the fork needs.
        """
        donor = request.prefix_donor
        if donor is None or donor.width > 1 or donor.status is not RequestStatus.RUNNING:
            return None
        if request.block_table.host_block_ids:
            return None
        num_tokens = min(request.num_prompt - 1, request.num_reusable)
        return cls(donor, num_tokens) if num_tokens > num_cached and kv.can_fork(donor, num_tokens) else None

    @property
    def is_ready(self) -> bool:
        """Whether the donor has computed that much."""
        return self.donor.num_computed >= self.num_tokens
