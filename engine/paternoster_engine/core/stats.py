"""Counters of a scheduler, and the part of them in ``/stats``."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from paternoster_engine.core.request import FinishReason
from paternoster_engine.core.step_work import StepSums

_NO_PLACE = ("queue_full", "queue_too_slow", "tenant_queue_full")
"""Reasons for refusing a request that are a want of a place in the queue."""


@dataclass(slots=True)
class Counters:
    """Every number only grows."""

    requests: int = 0
    """Requests taken into the queue."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Requests refused, by reason."""
    finished: Counter[FinishReason] = field(default_factory=Counter)
    corrupted_requests: int = 0
    """Requests that ended because the model gave NaN, or infinite logits, for them."""
    preemptions: int = 0
    """Preemption events."""
    requests_preempted: int = 0
    """Distinct requests preempted at least once, except those first preempted for another tenant's share."""
    priority_preemptions: int = 0
    """Preemptions that made way for a more important request, or for one of a tenant that held less."""
    prefix_waits: int = 0
    """Steps that a request sat out because another one was computing its next block."""
    swapped_out_blocks: int = 0
    swapped_in_blocks: int = 0
    prompt_tokens: int = 0
    """Prompt tokens of requests scheduled for the first time."""
    cached_prompt_tokens: int = 0
    """Number of those that the prefix cache served."""
    uncached_prompt_tokens: int = 0
    """The others: a counter of its own, as a difference of two that are read apart might fall."""
    prefix_queries: int = 0
    """Tokens looked up in the prefix cache, resumed requests included."""
    prefix_hits: int = 0
    """Number of those that were found."""
    generation_tokens: int = 0
    computed_tokens: int = 0
    """Tokens that went through the model."""
    recomputed_tokens: int = 0
    """Number of those that had been computed before a preemption took them."""
    proposals: Counter[str] = field(default_factory=Counter)
    """Proposals, by proposer."""
    proposed_tokens: Counter[str] = field(default_factory=Counter)
    accepted_tokens: Counter[str] = field(default_factory=Counter)
    """Number of those that were sampled then."""
    accepted_at: Counter[int] = field(default_factory=Counter)
    """Accepted tokens by their place in the proposal, from 0."""
    queue_seconds: float = 0.0
    """Sum of arrival to first scheduling."""
    queue_count: int = 0
    live_cap_changes: int = 0
    token_budget_changes: int = 0
    steps: StepSums = field(default_factory=StepSums)
    """Sums over the steps that were computed."""

    def count_proposal(self, proposer: str, proposed: int, accepted: int) -> None:
        """Count a proposal that was verified; both numbers are of tokens."""
        self.proposals[proposer] += 1
        self.proposed_tokens[proposer] += proposed
        self.accepted_tokens[proposer] += accepted
        for place in range(accepted):
            self.accepted_at[place] += 1

    def build_totals(self, ticks_per_second: int = 1) -> dict[str, Any]:
        """Return them by the names in ``paternoster_contract.stats.EngineStats``.

        ``ticks_per_second`` is the unit of the times that the scheduler was given.
        """
        return {
            "requests_total": self.requests,
            "requests_finished_total": sum(self.finished.copy().values()),
            "requests_rejected_total": sum(self.rejected.copy().values()),
            "requests_rejected_full_total": sum(self.rejected[reason] for reason in _NO_PLACE),
            "requests_preempted_total": self.requests_preempted,
            "preemptions_total": self.preemptions,
            "prompt_tokens_total": self.prompt_tokens,
            "cached_prompt_tokens_total": self.cached_prompt_tokens,
            "generation_tokens_total": self.generation_tokens,
            "computed_tokens_total": self.computed_tokens,
            "recomputed_tokens_total": self.recomputed_tokens,
            "queue_seconds_total": self.queue_seconds / ticks_per_second,
            "queue_count_total": self.queue_count,
            "step_sums": self.steps.in_seconds(ticks_per_second),
        }
