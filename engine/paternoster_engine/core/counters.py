"""What a scheduler has done so far; every number only grows."""

from collections import Counter
from dataclasses import dataclass, field

from paternoster_engine.core.request import FinishReason
from paternoster_engine.core.step_work import StepSums


@dataclass(slots=True)
class Counters:
    requests: int = 0
    """Requests taken into the queue."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Requests refused, by reason."""
    finished: Counter[FinishReason] = field(default_factory=Counter)
    preemptions: int = 0
    """Preemption events."""
    requests_preempted: int = 0
    """Distinct requests preempted at least once."""
    displacements: int = 0
    """Preemptions that made way for a more important request."""
    prefix_waits: int = 0
    """Steps that a request sat out because another one was computing its next block."""
    swapped_out_blocks: int = 0
    swapped_in_blocks: int = 0
    prompt_tokens: int = 0
    """Prompt tokens of requests scheduled for the first time."""
    cached_prompt_tokens: int = 0
    """Of those, tokens the prefix cache served."""
    prefix_queries: int = 0
    """Tokens looked up in the prefix cache, resumed requests included."""
    prefix_hits: int = 0
    """Of those, tokens found."""
    generation_tokens: int = 0
    computed_tokens: int = 0
    """Tokens that went through the model."""
    recomputed_tokens: int = 0
    """Of those, tokens that had been computed before a preemption took them."""
    queue_seconds: float = 0.0
    """Sum of arrival to first scheduling."""
    queue_count: int = 0
    live_cap_changes: int = 0
    token_budget_changes: int = 0
    steps: StepSums = field(default_factory=StepSums)
    """Of those that were computed."""
