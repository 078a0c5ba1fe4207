"""The sequences of one beam search: one while the prompt is computed, then one for each beam, on shared blocks."""

from collections.abc import Sequence
from dataclasses import replace

from paternoster_engine.core.beam_search import BeamSearch, Hypothesis
from paternoster_engine.core.kv_cache import KVCache
from paternoster_engine.core.request import Request, RequestStatus


class BeamGroup:
    """Beams are scheduled each on its own and get longer together, in the step that computes the last of them.

    The first member is the request itself. It queues, and it is what the client, quotas and deadlines know of. A group
    is preempted as a whole: it is *folded* then, which leaves the request with what all beams have in common.
    """

    def __init__(self, leader: Request) -> None:
        params = leader.params
        assert params.beam is not None, "only a request that asks for beams has a group"
        self.leader = leader
        self.search = BeamSearch(params.beam, params, leader.eos_token_ids)
        self.folded = True
        """Only the leader can hold blocks."""
        others = replace(params, prompt_logprobs=None)
        self._members = [leader]
        self._members += [
            Request(
                f"{leader.request_id}.{i}",
                leader.prompt,
                others,
                arrival=leader.arrival,
                priority=leader.priority,
                tenant=leader.tenant,
                limits=leader.limits,
                cache_scope=leader.cache_scope,
                status=RequestStatus.PREEMPTED,
            )
            for i in range(1, params.beam.width)
        ]
        for member in self._members:
            member.group = self

    @property
    def sequences(self) -> Sequence[Request]:
        """Members that can hold blocks: member ``i`` is live beam ``i`` of the search, the leader alone if folded."""
        return self._members[:1] if self.folded else self._members

    @property
    def num_continuations(self) -> int:
        """How many of a beam's most likely next tokens the search has to be told."""
        return max(self.search.num_continuations, self.leader.params.logprobs or 0)

    @property
    def num_tokens(self) -> int:
        """Tokens known of each beam."""
        return self.leader.num_prompt + self.search.num_tokens

    @property
    def hypotheses(self) -> Sequence[Hypothesis]:
        """The answers, best first, once the search is done."""
        return self.search.finished

    def advance(self, kv: KVCache) -> int:
        """Make all beams a token longer, or unfold the group, if the step computed what was missing for it.

        Returns the number of new tokens; 0 while some beams are not computed yet.
        """
        rows = self.sequences
        if any(row.num_uncomputed > 0 for row in rows):
            return 0
        if self.folded and self.search.num_tokens > 0:
            self._spread(kv, [self.leader] * len(self._members))
            for member in self._members:
                kv.find_more(member)
            return 0
        chosen = self.search.advance([row.continuations for row in rows])
        if not self.search.done:
            self._spread(kv, [rows[parent] for parent in chosen])
        return len(self._members)

    def fold(self) -> None:
        """All blocks were taken away."""
        leader, live = self.leader, self.search.live
        common = 0
        while common < len(live[0].tokens) and len({beam.tokens[common] for beam in live}) == 1:
            common += 1
        leader.output = list(live[0].tokens[:common])
        self.folded = True

    def _spread(self, kv: KVCache, parents: Sequence[Request]) -> None:
        kv.fork(self._members, parents)
        self.folded = False
        for member, beam in zip(self._members, self.search.live, strict=True):
            member.output = list(beam.tokens)
            member.status = RequestStatus.RUNNING
            member.continuations = ()
