"""The constants of the scaling law in one place, so that an experiment passes others instead of patching modules."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Every constant of the law. Shares are 0..1.

    What each gains is the row of its name in ``docs/control.md``, "The constants".
    """

    replica_period_seconds: float = 15.0
    """Between two evaluations of the replica loop: three of the cap loop's, whose change then has settled. The token
    budget rests for as long after a change."""
    engine_period_seconds: float = 5.0
    """Between two evaluations of live cap and token budget, which act on the next step and restart nothing."""
    window_seconds: float = 30.0
    """Span of the numbers that a decision looks at: of an engine six samples."""
    stale_seconds: float = 15.0
    """Age of an engine's last sample beyond which it is stale: three missed polls."""

    half_life_seconds: float = 600.0
    """Age at which an observation counts half: longer than a burst, shorter than a change of the time of day."""
    recent_half_life_seconds: float = 40.0
    """Half-life for the traffic of the last minute, which shows that heavier requests no longer come."""
    lighter_factor: float = 1.5
    """How many times less work requests must take in the last minute for what was before to be forgotten: far more
    than a minute of chance."""
    min_observations: float = 6.0
    """Observations of a replica below which no model is concluded: half a minute of one replica."""
    outlier_share: float = 0.5
    """Share by which a step's time may differ from what was expected and still count whole."""
    crowded_kv_usage: float = 0.5
    """KV use above which sequences larger than remembered count at once: memory may then run out before the mean of ten
    minutes has moved. Below it the longest few, which are left after a burst, would pass for all."""
    min_answers: float = 50.0
    """Answers below which their mean length is not relied upon: lengths spread as much as their mean."""
    itl_margin: float = 0.9
    """Share of the limit between tokens that the mean is planned for: the limit is for the slow ones."""

    queue_wait_share: float = 0.33
    """Share of the limit for first tokens that a request may be expected to wait, once no replica can be added: waits
    vary, and the prompt takes time, too."""
    prior_arrivals: float = 10.0
    """Arrivals that weigh as much as what runs now: a rate of few requests is uncertain."""

    cap_step: int = 4
    """Sequences by which the cap is raised at least, while no cap has been found too high."""
    max_cap_cut_share: float = 0.2
    """Largest share of the cap that is taken away at once when tokens come too late."""
    planned_kv_usage: float = 0.9
    """KV use up to which replicas are planned for; with PreemptionRate the cap is raised no further."""
    min_ended_requests: int = 5
    """Ended requests below which the share of the preempted ones is chance."""
    like_kv_share: float = 1.5
    """How many times as much of the KV pool a sequence may hold for an earlier trial of the cap to count still."""
    max_repeated_share: float = 0.05
    """Share of the engines' time in which tokens may be computed again, above which Goodput cuts the cap."""

    trend_seconds: float = 300.0
    """What the line through arrivals is fitted to: long enough to separate a ramp from chance, short against a day."""
    trend_certainty: float = 2.5
    """Standard errors by which its slope must be above zero."""
    trend_misfit: float = 3.0
    """Mean squared residual, in variances, above which it explains nothing: a step or a burst is no line."""

    window_coverage: float = 0.75
    """Share of a window's evaluations that must have been made for it to count."""
    unknown_startup_seconds: float = 120.0
    """Time that a replica takes to start, while no start was seen."""
    spare_startups: float = 2.0
    """Starts for which a spare replica stays: twice what it takes to get it back, as users pay for a mistake."""
    filled_startups: float = 12.0
    """Starts for which the replicas stay that a peak filled: what is back within seconds is not worth an hour."""
    min_kept_seconds: float = 60.0
    """Shortest time for which a spare replica stays, also where a start takes seconds."""
    max_kept_seconds: float = 900.0
    """Longest time for which spare or filled replicas stay: a fleet must not forget to shrink, and a peak that was
    chance costs a quarter of an hour of what it filled and no more."""

    budget_grain: int = 32
    """Token budgets are multiples of this many tokens, or the capacity: a smaller change is noise."""
    min_token_budget: int = 128
    """Tokens of a step below which the step itself takes most of the time, on GPUs as on CPUs; where none is set."""

    def is_like_kv_share(self, share: float, other: float) -> bool:
        """Whether ``share`` is no more than what counts as ``other``."""
        return share <= self.like_kv_share * other


DEFAULT_TUNING: Final = Tuning()
