"""Sequences that go on from the blocks of others, with copies only where they write."""

from collections.abc import Sequence
from typing import NamedTuple

from paternoster_engine.core.kv.kv_cache import KVCache
from paternoster_engine.core.request import Request, RequestStatus, SequenceGroup


class Fork(NamedTuple):
    """What a request copies from a running request with the same prompt.

    All of the prompt but its last token, which each request computes to sample from.
    """

    donor: Request
    num_tokens: int

    @classmethod
    def of(cls, request: Request, num_cached: int, kv: KVCache) -> "Fork | None":
        """None where there is no twin to fork from, or nothing to gain over ``num_cached`` tokens.

        A group is no donor: its last block may be a copy that is not made yet. Nor is a twin whose windows have
        gone on.
        """
        donor = request.twin
        if donor is None or donor.group is not None or donor.status is not RequestStatus.RUNNING:
            return None
        if request.host_block_ids:
            return None
        num_tokens = min(request.num_prompt - 1, request.num_reusable)
        return cls(donor, num_tokens) if num_tokens > num_cached and kv.holds(donor, num_tokens) else None

    @property
    def ready(self) -> bool:
        """Whether the donor has computed that much."""
        return self.donor.num_computed >= self.num_tokens


def advance_group(group: SequenceGroup, kv: KVCache) -> int:
    """Make all sequences a token longer, or unfold the group, if the step computed what was missing for it.

    Returns the number of new tokens; 0 while some sequences are not computed yet.
    """
    rows = group.sequences
    if any(row.num_uncomputed > 0 for row in rows):
        return 0
    if group.folded and group.branches[0]:
        _spread(group, kv, [group.leader] * len(group.members))
        for member in group.members:
            kv.find_more(member)
        return 0
    chosen = group.branching.advance([row.continuations for row in rows])
    group.ended = not chosen
    if chosen:
        group.branches = [[*group.branches[parent], token] for parent, token in chosen]
        _spread(group, kv, [rows[parent] for parent, _ in chosen])
    return len(group.members)


def _spread(group: SequenceGroup, kv: KVCache, parents: Sequence[Request]) -> None:
    kv.fork(group.members, parents)
    group.folded = False
    for member, branch in zip(group.members, group.branches, strict=True):
        member.output = list(branch)
        member.status = RequestStatus.RUNNING
        member.continuations = ()
