"""Tokens that are proposed before they are known, in the room that a step has left.

A request whose next step samples may take more tokens into it: those that its grammar forces, those that followed its
last tokens before, or those that a draft model says. The step samples after each of them, and :class:`StepUpdate` keeps
them as far as they are what was sampled. Sampling is a pure function of (logits, seed, position), so the output is the
same as one token at a time; only time can be lost, and how much is steered here.

A step takes the time of ``FREE_TOKENS`` tokens and that of its own. So one more token is worth it where it is right
with a likelihood above the share that its tokens have in the step's time: nearly always in a step of one token, hardly
ever in a full batch.
"""

from collections.abc import Sequence

from paternoster_engine.core.batch import BatchBuilder, ScheduledRequest
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.drafting import LONG, MOST, PROBE, SHORT, Drafting, after, best_depth, price
from paternoster_engine.core.kv.kv_cache import KVCache
from paternoster_engine.core.model_drafts import DRAFT, OF_ALL, Ask, Drafter, ModelDrafts
from paternoster_engine.core.request import Request, RequestStatus
from paternoster_engine.core.stats import Counters

GRAMMAR, LOOKUP = "grammar", "lookup"
PROPOSERS = (GRAMMAR, LOOKUP, DRAFT)


class Speculation:
    """Fills what a step's budget leaves with proposals, and learns what became of them."""

    def __init__(
        self, config: SchedulerConfig, kv: KVCache, counters: Counters, drafter: Drafter | None = None
    ) -> None:
        """``drafter``: for ``speculative: draft``. ``auto`` is resolved where an engine is built, and here off."""
        self._kv = kv
        self._counters = counters
        # The no-evict reservation counts on one token a step.
        asked = config.speculative not in ("off", "auto")
        self._on = asked and not config.whole_prompts and config.admission != "no-evict"
        self._looks_up = config.speculative in ("ngram", "draft")
        self._model = None
        if drafter is not None and config.speculative == "draft":
            self._model = ModelDrafts(drafter, kv, counters)
        self._rates = {GRAMMAR: 0.95, LOOKUP: 0.5, DRAFT: 0.8}
        """How many proposed tokens are right; at first, what was seen of grammars, texts and draft models."""

    def extend(self, builder: BatchBuilder) -> None:
        """Let requests that sample in the step propose tokens, as long as its budget has some left.

        Nobody is preempted for a proposal.
        """
        if not self._on or builder.budget == 0:
            return
        requests = [request for request in builder.chunks if self._looks_up or request.matcher is not None]
        if not requests:
            return
        load, left = sum(builder.chunks.values()), builder.budget
        asks: list[Ask] = []
        if self._model is not None:
            self._model.begin(load)
        for request in requests:
            known = request.num_tokens
            reaches_end = request.num_computed + builder.chunks[request] == known and not request.num_pending
            most = min(MOST, left, request.params.max_tokens - len(request.output) - 1)
            if request.matcher is not None:
                most = min(most, request.matcher.most_proposed)
            if not reaches_end or request.group is not None or most <= 0:
                continue
            proposed = self._propose(request, most, load)
            if proposed:
                proposed = proposed[: self._room(request, len(proposed))]
                if proposed:
                    builder.propose(request, proposed)
                load, left = load + len(proposed), left - len(proposed)
            elif self._model is not None and (ask := self._ask(self._model, request, most, load, left)):
                asks.append(ask)
                load, left = load + ask.depth, left - (ask.stop - ask.start) - ask.depth
        if self._model is not None and asks:
            self._take_drafts(builder, self._model, asks)

    def learn(self, item: ScheduledRequest, accepted: int) -> None:
        """Of the tokens that ``item`` proposes the first ``accepted`` are right."""
        drafting = self._drafting(item.request)
        proposer, passed_over = drafting.proposer, drafting.passed_over
        self._judge(drafting, proposer, accepted, accepted < len(item.proposed))
        self._counters.propose(proposer, len(item.proposed), accepted)
        if passed_over:
            # As if it had been proposed, so that it is known when it is better.
            given = item.request.output[-1 - accepted :]
            same = [said == token for said, token in zip(passed_over, given, strict=False)]
            right = (*same, False).index(False)
            self._judge(drafting, LOOKUP, right, right < len(same))
        if proposer == DRAFT and self._model is not None and item.request.status is RequestStatus.RUNNING:
            self._model.learn(item.request, drafting, item.known_stop, len(item.proposed), accepted)

    def _judge(self, drafting: Drafting, proposer: str, right: int, wrong: bool) -> None:
        """``right`` tokens of ``proposer`` proved right, and then, perhaps, a wrong one."""
        drafting.rates[proposer] = after(drafting.rates[proposer], SHORT, right, wrong)
        self._rates[proposer] = after(self._rates[proposer], OF_ALL if proposer == DRAFT else LONG, right, wrong)

    def awaits(self, request: Request, load: int) -> bool:
        """Whether the request would propose more, in a step of ``load`` tokens, once its newest tokens are known."""
        if not self._on or request.group is not None:
            return False
        drafting = self._drafting(request)
        if self._model is not None and self._model.depth(request, drafting, load) > 0:
            return True
        return any(drafting.depth(each, load, request.num_tokens) > 0 for each in self._proposers(request))

    def _proposers(self, request: Request) -> Sequence[str]:
        of_grammar = (GRAMMAR,) if request.matcher is not None else ()
        return (*of_grammar, LOOKUP) if self._looks_up else of_grammar

    def _propose(self, request: Request, most: int, load: int) -> Sequence[int]:
        """What is proposed at once, without a model."""
        drafting = self._drafting(request)
        drafting.passed_over = ()
        for proposer in self._proposers(request):
            depth = min(most, drafting.depth(proposer, load, request.num_tokens))
            if depth == 0:
                continue
            proposed = _before_end(request, self._tokens(request, drafting, proposer, depth))
            if proposer == LOOKUP and proposed and self._model_is_better(request, drafting, load):
                drafting.passed_over = proposed
            elif proposed:
                drafting.proposer = proposer
                drafting.probe_at = request.num_tokens + PROBE
                return proposed
        return []

    def _model_is_better(self, request: Request, drafting: Drafting, load: int) -> bool:
        """Whether the draft model saves more than what stood there before, and is to be asked."""
        if self._model is None:
            return False
        _, saved = best_depth(drafting.rates[LOOKUP], price(load))
        return self._model.saves(drafting, load) > saved and self._model.depth(request, drafting, load) > 0

    def _ask(self, model: ModelDrafts, request: Request, most: int, load: int, left: int) -> Ask | None:
        """What the draft model is to do for the request with ``left`` tokens of the step's budget."""
        drafting = self._drafting(request)
        depth = self._room(request, min(most, model.depth(request, drafting, load)))
        return model.ask(request, drafting, depth, load, left) if depth > 0 else None

    def _take_drafts(self, builder: BatchBuilder, model: ModelDrafts, asks: Sequence[Ask]) -> None:
        """Propose what the draft model says, all requests' at once."""
        for ask, said in zip(asks, model.propose(asks), strict=True):
            request, drafting = ask.request, self._drafting(ask.request)
            proposed = _before_end(request, said)
            if request.matcher is not None:
                proposed = proposed[: request.matcher.accepts(request, proposed)]
            if proposed:
                drafting.proposer = DRAFT
                builder.propose(request, proposed)
            elif ask.depth:
                model.useless(drafting)

    def _room(self, request: Request, count: int) -> int:
        """How many of ``count`` tokens after those known have room, without taking any from others."""
        known = request.num_tokens
        if known + count <= request.room or self._kv.grow(request, known + count):
            return count
        return request.room - known

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
