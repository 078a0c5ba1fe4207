"""Tokens that are proposed before they are known, in the room that a step has left.

A request whose next step samples may take more tokens into it: those that its grammar forces, those that followed its
last tokens before, or those of a draft model. The step samples after each of them, and :class:`StepUpdate` accepts
them as far as they are what was sampled. Sampling is a pure function of (logits, seed, position), so the output is the
same as one token at a time; only time can be lost, and how much is steered here.

A step takes the time of ``OVERHEAD_TOKENS`` tokens and that of its own. So one more token is worth it where it is right
with a likelihood above the share that its tokens have in the step's time: nearly always in a step of one token, hardly
ever in a full batch.
"""

from collections.abc import Sequence

from paternoster_engine.core.batch import BatchBuilder, ScheduledRequest
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.drafting.draft_state import (
    ENGINE_DECAY,
    MAX_PROPOSED,
    PROBE_INTERVAL,
    REQUEST_DECAY,
    DraftState,
    best_length,
    token_cost,
    updated_rate,
)
from paternoster_engine.core.kv.kv_cache import KVCache
from paternoster_engine.core.model_drafts import DRAFT, MODEL_DECAY, Drafter, DraftTask, ModelDrafts
from paternoster_engine.core.request import Request, RequestStatus
from paternoster_engine.core.stats import Counters

GRAMMAR, LOOKUP = "grammar", "lookup"
PROPOSERS = (GRAMMAR, LOOKUP, DRAFT)


class Speculation:
    """Fills what a step's budget leaves with proposals, and records which of them were accepted."""

    def __init__(
        self, config: SchedulerConfig, kv: KVCache, counters: Counters, drafter: Drafter | None = None
    ) -> None:
        """``drafter``: for ``speculative: draft``. ``auto`` is resolved where an engine is built, and here off."""
        self._kv = kv
        self._counters = counters
        # The no-evict reservation counts on one token a step.
        enabled = config.speculative not in ("off", "auto")
        self._on = enabled and not config.whole_prompts and config.admission != "no-evict"
        self._looks_up = config.speculative in ("ngram", "draft")
        self._model = None
        if drafter is not None and config.speculative == "draft":
            self._model = ModelDrafts(drafter, kv, counters)
        self._rates = {GRAMMAR: 0.95, LOOKUP: 0.5, DRAFT: 0.8}
        """Proposer -> share of tokens accepted; the first values were measured."""

    def extend_batch(self, builder: BatchBuilder) -> None:
        """Let requests that sample in the step propose tokens, as long as its budget has some left.

        No request is preempted for a proposal.
        """
        if not self._on or builder.budget == 0:
            return
        requests = [request for request in builder.chunks if self._looks_up or request.matcher is not None]
        if not requests:
            return
        load, left = sum(builder.chunks.values()), builder.budget
        tasks: list[DraftTask] = []
        if self._model is not None:
            self._model.begin_step(load)
        for request in requests:
            num_known = request.num_tokens
            reaches_end = request.num_computed + builder.chunks[request] == num_known and not request.num_pending
            most = min(MAX_PROPOSED, left, request.params.max_tokens - len(request.output) - 1)
            if request.matcher is not None:
                most = min(most, request.matcher.max_proposed)
            if not reaches_end or request.branches is not None or most <= 0:
                continue
            proposed = self._propose(request, most, load)
            if proposed:
                proposed = proposed[: self._count_fitting(request, len(proposed))]
                if proposed:
                    builder.add_proposal(request, proposed)
                load, left = load + len(proposed), left - len(proposed)
            elif self._model is not None and (task := self._plan_draft(self._model, request, most, load, left)):
                tasks.append(task)
                load, left = load + task.depth, left - (task.stop - task.start) - task.depth
        if self._model is not None and tasks:
            self._add_drafts(builder, self._model, tasks)

    def record_accepted(self, item: ScheduledRequest, accepted: int) -> None:
        """Record that the first ``accepted`` tokens that ``item`` proposes were accepted."""
        drafting = self._ensure_draft_state(item.request)
        proposer, unused_lookup = drafting.proposer, drafting.unused_lookup
        self._update_rates(drafting, proposer, accepted, accepted < len(item.proposed))
        self._counters.count_proposal(proposer, len(item.proposed), accepted)
        if unused_lookup:
            # As if it had been proposed, so that its rate shows when it is better.
            given = item.request.output[-1 - accepted :]
            same = [unused == token for unused, token in zip(unused_lookup, given, strict=False)]
            right = (*same, False).index(False)
            self._update_rates(drafting, LOOKUP, right, right < len(same))
        if proposer == DRAFT and self._model is not None and item.request.status is RequestStatus.RUNNING:
            self._model.record_accepted(item.request, drafting, item.known_stop, len(item.proposed), accepted)

    def _update_rates(self, drafting: DraftState, proposer: str, right: int, wrong: bool) -> None:
        """Record ``right`` accepted tokens of ``proposer`` and then, perhaps, a rejected one."""
        drafting.rates[proposer] = updated_rate(drafting.rates[proposer], REQUEST_DECAY, right, wrong)
        self._rates[proposer] = updated_rate(
            self._rates[proposer], MODEL_DECAY if proposer == DRAFT else ENGINE_DECAY, right, wrong
        )

    def needs_new_tokens(self, request: Request, load: int) -> bool:
        """Whether the request would propose more, in a step of ``load`` tokens, once its newest tokens are known."""
        if not self._on or request.branches is not None:
            return False
        drafting = self._ensure_draft_state(request)
        if self._model is not None and self._model.choose_length(request, drafting, load) > 0:
            return True
        return any(drafting.choose_length(each, load, request.num_tokens) > 0 for each in self._list_proposers(request))

    def _list_proposers(self, request: Request) -> Sequence[str]:
        of_grammar = (GRAMMAR,) if request.matcher is not None else ()
        return (*of_grammar, LOOKUP) if self._looks_up else of_grammar

    def _propose(self, request: Request, most: int, load: int) -> Sequence[int]:
        """Return a proposal that needs no model."""
        drafting = self._ensure_draft_state(request)
        drafting.unused_lookup = ()
        for proposer in self._list_proposers(request):
            depth = min(most, drafting.choose_length(proposer, load, request.num_tokens))
            if depth == 0:
                continue
            proposed = _cut_before_end(request, self._find_proposal(request, drafting, proposer, depth))
            if proposer == LOOKUP and proposed and self._model_is_better(request, drafting, load):
                drafting.unused_lookup = proposed
            elif proposed:
                drafting.proposer = proposer
                drafting.probe_at = request.num_tokens + PROBE_INTERVAL
                return proposed
        return []

    def _model_is_better(self, request: Request, drafting: DraftState, load: int) -> bool:
        """Whether the draft model saves more time than the lookup, and should propose."""
        if self._model is None:
            return False
        _, saved = best_length(drafting.rates[LOOKUP], token_cost(load))
        return (
            self._model.saved_share(drafting, load) > saved and self._model.choose_length(request, drafting, load) > 0
        )

    def _plan_draft(self, model: ModelDrafts, request: Request, most: int, load: int, left: int) -> DraftTask | None:
        """Plan the draft model's work for the request with ``left`` tokens of the step's budget."""
        drafting = self._ensure_draft_state(request)
        depth = self._count_fitting(request, min(most, model.choose_length(request, drafting, load)))
        return model.plan_draft(request, drafting, depth, load, left) if depth > 0 else None

    def _add_drafts(self, builder: BatchBuilder, model: ModelDrafts, tasks: Sequence[DraftTask]) -> None:
        """Add the proposals of the draft model, of all requests at once."""
        for task, draft in zip(tasks, model.propose(tasks), strict=True):
            request, drafting = task.request, self._ensure_draft_state(task.request)
            proposed = _cut_before_end(request, draft)
            if request.matcher is not None:
                proposed = proposed[: request.matcher.count_accepted(request, proposed)]
            if proposed:
                drafting.proposer = DRAFT
                builder.add_proposal(request, proposed)
            elif task.depth:
                model.record_rejected(drafting)

    def _count_fitting(self, request: Request, count: int) -> int:
        """Return how many of ``count`` tokens after the known ones have blocks, without a preemption."""
        num_known = request.num_tokens
        if num_known + count <= request.block_table.num_writable or self._kv.grow_table(request, num_known + count):
            return count
        return request.block_table.num_writable - num_known

    def _find_proposal(self, request: Request, drafting: DraftState, proposer: str, depth: int) -> Sequence[int]:
        matcher = request.matcher
        if proposer == GRAMMAR:
            assert matcher is not None
            return matcher.forced_tokens(request)[:depth]
        proposed = drafting.lookup.propose(request, depth)
        if proposed and matcher is not None:
            return proposed[: matcher.count_accepted(request, proposed)]
        return proposed

    def _ensure_draft_state(self, request: Request) -> DraftState:
        if request.drafting is None:
            request.drafting = DraftState(dict(self._rates), request.num_tokens + PROBE_INTERVAL)
        return request.drafting


def _cut_before_end(request: Request, tokens: Sequence[int]) -> Sequence[int]:
    """Return ``tokens`` up to the first that ends the request, which is sampled without a proposal."""
    ends = {*request.eos_token_ids, *request.params.stop_token_ids}
    return next((tokens[:place] for place, token in enumerate(tokens) if token in ends), tokens)
