"""Tokens that are proposed before they are known, in the room that a step has left.

A request whose next step samples may take more tokens into it: those that its grammar forces, or those that followed
its last tokens before. The step samples after each of them, and :class:`StepUpdate` keeps them as far as they are what
was sampled. Sampling is a pure function of (logits, seed, position), so the output is the same as one token at a time;
only time can be lost, and how much is steered here.

A step takes the time of ``FREE_TOKENS`` tokens and that of its own. So one more token is worth it where it is right
with a likelihood above the share that its tokens have in the step's time: nearly always in a step of one token, hardly
ever in a full batch.
"""

from collections.abc import Sequence

from paternoster_engine.core.batch import BatchBuilder, ScheduledRequest
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.drafting import LONG, MOST, PROBE, SHORT, Drafting, after
from paternoster_engine.core.kv.kv_cache import KVCache
from paternoster_engine.core.request import Request
from paternoster_engine.core.stats import Counters

GRAMMAR, LOOKUP = "grammar", "lookup"
PROPOSERS = (GRAMMAR, LOOKUP)


class Speculation:
    """Fills what a step's budget leaves with proposals, and learns what became of them."""

    def __init__(self, config: SchedulerConfig, kv: KVCache, counters: Counters) -> None:
        self._kv = kv
        self._counters = counters
        # The no-evict reservation counts on one token a step.
        self._on = config.speculative != "off" and not config.whole_prompts and config.admission != "no-evict"
        # And a full one on what windows hold of single tokens.
        self._grows = config.admission == "greedy" or not kv.groups.with_window
        self._looks_up = config.speculative == "ngram"
        self._rates = {GRAMMAR: 0.95, LOOKUP: 0.5}
        """How many proposed tokens are right; at first, what was seen of grammars and texts."""

    def extend(self, builder: BatchBuilder) -> None:
        """Let requests that sample in the step propose tokens, as long as its budget has some left.

        Nobody is preempted for a proposal.
        """
        if not self._on or builder.budget == 0:
            return
        requests = [request for request in builder.chunks if self._looks_up or request.matcher is not None]
        if not requests:
            return
        load = sum(builder.chunks.values())
        for request in requests:
            known = request.num_tokens
            reaches_end = request.num_computed + builder.chunks[request] == known and not request.num_pending
            most = min(MOST, builder.budget, request.params.max_tokens - len(request.output) - 1)
            if not reaches_end or request.group is not None or most <= 0:
                continue
            proposed = self._propose(request, most, load)
            if known + len(proposed) > request.room and not (
                self._grows and self._kv.grow(request, known + len(proposed))
            ):
                proposed = proposed[: request.room - known]
            if proposed:
                builder.propose(request, proposed)
                load += len(proposed)

    def learn(self, item: ScheduledRequest, accepted: int) -> None:
        """Of the tokens that ``item`` proposes the first ``accepted`` are right."""
        drafting = self._drafting(item.request)
        proposer, wrong = drafting.proposer, accepted < len(item.proposed)
        drafting.rates[proposer] = after(drafting.rates[proposer], SHORT, accepted, wrong)
        self._rates[proposer] = after(self._rates[proposer], LONG, accepted, wrong)
        self._counters.propose(proposer, len(item.proposed), accepted)

    def awaits(self, request: Request, load: int) -> bool:
        """Whether the request would propose more, in a step of ``load`` tokens, once its newest tokens are known."""
        if not self._on or request.group is not None:
            return False
        drafting = self._drafting(request)
        return any(drafting.depth(each, load, request.num_tokens) > 0 for each in self._proposers(request))

    def _proposers(self, request: Request) -> Sequence[str]:
        of_grammar = (GRAMMAR,) if request.matcher is not None else ()
        return (*of_grammar, LOOKUP) if self._looks_up else of_grammar

    def _propose(self, request: Request, most: int, load: int) -> Sequence[int]:
        drafting = self._drafting(request)
        for proposer in self._proposers(request):
            depth = min(most, drafting.depth(proposer, load, request.num_tokens))
            if depth == 0:
                continue
            proposed = _before_end(request, self._tokens(request, drafting, proposer, depth))
            if proposed:
                drafting.proposer = proposer
                drafting.probe_at = request.num_tokens + PROBE
                return proposed
        return []

    def _tokens(self, request: Request, drafting: Drafting, proposer: str, depth: int) -> Sequence[int]:
        matcher = request.matcher
        if proposer == GRAMMAR:
            assert matcher is not None
            return matcher.forced(request)[:depth]
        proposed = drafting.lookup.propose(request, depth)
        if proposed and matcher is not None:
            return proposed[: matcher.accepts(request, proposed)]
        return proposed

    def _drafting(self, request: Request) -> Drafting:
        if request.drafting is None:
            request.drafting = Drafting(dict(self._rates), request.num_tokens + PROBE)
        return request.drafting


def _before_end(request: Request, tokens: Sequence[int]) -> Sequence[int]:
    """``tokens`` up to the first that ends the request: it is sampled without being proposed."""
    ends = {*request.eos_token_ids, *request.params.stop_token_ids}
    return next((tokens[:place] for place, token in enumerate(tokens) if token in ends), tokens)
