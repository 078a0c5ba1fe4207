"""An outcome as a few lines of text."""

from collections.abc import Iterator

from paternoster_simulator.outcome.outcome import SimulationOutcome

MOST_DECISIONS = 40


def summary_lines(outcome: SimulationOutcome) -> Iterator[str]:
    """What a person wants to know first."""
    objective = outcome.objective
    yield f"profile       {outcome.profile.name} ({outcome.profile.source})"
    yield f"virtual time  {outcome.seconds:,.0f} s"
    yield f"requests      {outcome.requests:,}: {outcome.finished:,} finished, {outcome.lost:,} lost"
    yield (
        f"SLO           {outcome.slo_attainment:.1%} within {objective.ttft_ms:g} ms to the first token "
        f"and {objective.itl_ms:g} ms a token"
    )
    for title, name in (("first token", "ttft"), ("each token", "itl"), ("whole answer", "end_to_end")):
        values = outcome.find_percentiles(name)
        shown = ", ".join(f"{share} {_format_milliseconds(values[share])}" for share in ("p50", "p95", "p99"))
        yield f"{title:<14}{shown}"
    totals = outcome.totals
    yield (
        f"preempted     {totals.preempted:,} requests = {outcome.preemption_rate:.2%} of those finished, "
        f"{totals.recomputed_tokens:,} of {totals.computed_tokens:,} tokens computed again"
    )
    unit = "GPU-hours" if outcome.profile.gpus_per_replica else "replica-hours"
    price = outcome.cost_per_million_tokens
    per_token = "" if price is None else f", ${price:,.3f} per million tokens generated"
    yield f"cost          {outcome.gpu_hours:,.3f} {unit} = ${outcome.cost:,.2f}{per_token}"
    limits = f"{outcome.cap_events} of the cap, {outcome.budget_events} of the token budget"
    yield f"changes       {outcome.scale_events} of replicas, {limits}"


def decision_lines(outcome: SimulationOutcome, most: int = MOST_DECISIONS) -> Iterator[str]:
    """The decisions that changed something, the first ``most`` of them."""
    for decision in outcome.decisions[:most]:
        yield f"{decision['time']:>8.0f} s  {decision.get('reason', '')}: {decision.get('message', '')}"
    left = len(outcome.decisions) - most
    if left > 0:
        yield f"            ... and {left} more (--json has them all)"


def _format_milliseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1000:,.2f} s" if value >= 1000 else f"{value:,.1f} ms"
