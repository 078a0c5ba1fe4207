"""The sequences of one request: one while the prompt is computed, then as many as its branch selector follows.

The first is the request itself. It waits in the queue, and quotas, deadlines and clients see it alone. All sequences
are preempted together: the request is *folded* then, which leaves it with what all of them have in common.
"""

from collections.abc import Sequence
from dataclasses import replace

from paternoster_engine.core.kv.kv_cache import KVCache
from paternoster_engine.core.request import BranchSelector, FinishReason, Request, RequestStatus


class BranchedRequest:
    """See :class:`Branches`."""

    def __init__(self, leader: Request, selector: BranchSelector, kv: KVCache) -> None:
        self.leader = leader
        self._selector = selector
        self._kv = kv
        self.folded = True
        """Only the leader can hold blocks."""
        self.ended = False
        self._outputs: list[list[int]] = [[]]
        """Output of each sequence, all of one length; they outlast a preemption."""
        params = replace(leader.params, prompt_logprobs=None)
        self._members = [leader]
        self._members += [
            Request(
                replace(leader.spec, request_id=f"{leader.request_id}.{i}", params=params),
                branch_selector=selector,
                status=RequestStatus.PREEMPTED,
            )
            for i in range(1, selector.width)
        ]
        for member in self._members:
            member.branches = self

    @property
    def sequences(self) -> Sequence[Request]:
        """Members that can hold blocks: member ``i`` follows ``_outputs[i]``, the leader alone if folded."""
        return self._members[:1] if self.folded else self._members

    @property
    def num_tokens(self) -> int:
        """Tokens known of each sequence."""
        return self.leader.num_prompt + len(self._outputs[0])

    def fold_branches(self) -> None:
        """See :class:`Branches`."""
        first, common = self._outputs[0], 0
        while common < len(first) and len({output[common] for output in self._outputs}) == 1:
            common += 1
        self.leader.output = first[:common]
        self.folded = True

    @property
    def outcome(self) -> tuple[Sequence[int], FinishReason]:
        """See :class:`BranchSelector`."""
        return self._selector.outcome

    def advance(self) -> int:
        """See :class:`Branches`."""
        sequences = self.sequences
        if any(sequence.num_uncomputed > 0 for sequence in sequences):
            return 0
        if self.folded and self._outputs[0]:
            self._fork_members([self.leader] * len(self._members))
            for member in self._members:
                self._kv.extend_from_cache(member)
            return 0
        selected = self._selector.select_branches([sequence.continuations for sequence in sequences])
        self.ended = not selected
        if selected:
            self._outputs = [[*self._outputs[parent], token] for parent, token in selected]
            self._fork_members([sequences[parent] for parent, _ in selected])
        return len(self._members)

    def _fork_members(self, parents: Sequence[Request]) -> None:
        self._kv.fork(self._members, parents)
        self.folded = False
        for member, output in zip(self._members, self._outputs, strict=True):
            member.output = list(output)
            member.status = RequestStatus.RUNNING
            member.continuations = ()
