"""What a request can take over from its twin, a running request with the same prompt."""

from typing import NamedTuple

from paternoster_engine.core.request import Request, RequestStatus


class Fork(NamedTuple):
    """All of the prompt but its last token, which everybody computes to sample from."""

    donor: Request
    num_tokens: int

    @classmethod
    def of(cls, request: Request, num_cached: int) -> "Fork | None":
        """None where there is no twin to fork from, or nothing to gain over ``num_cached`` tokens.

        A search is no donor: its last block may be a copy that is not made yet.
        """
        donor = request.twin
        if donor is None or donor.group is not None or donor.status is not RequestStatus.RUNNING:
            return None
        if request.host_block_ids:
            return None
        num_tokens = min(request.num_prompt - 1, request.num_reusable)
        return cls(donor, num_tokens) if num_tokens > num_cached else None

    @property
    def ready(self) -> bool:
        """Whether the donor has computed that much."""
        return self.donor.num_computed >= self.num_tokens

    def full_blocks(self, block_size: int) -> list[int]:
        """Blocks that are shared as they are."""
        return self.donor.block_ids[: self.num_tokens // block_size]
