"""What is compared: the same few numbers of a real run and of a simulated one."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from harness.local_fleet import Sample
from paternoster_load.results import RequestEnd, RequestResult
from paternoster_simulator.outcome.outcome import SimulationOutcome as Simulated

COMPARED = ("output_tokens_per_second", "mean_queue_depth", "preemption_rate")


@dataclass(frozen=True, slots=True)
class Measures:
    """From the first request sent to the last answer."""

    output_tokens_per_second: float
    mean_queue_depth: float
    """Requests waiting in the engines, averaged over time."""
    preemption_rate: float
    """Distinct requests preempted over requests finished."""
    median_ttft_seconds: float
    mean_itl_seconds: float
    preemptions: float
    requests: float
    seconds: float
    mean_cap: float
    """Live cap of a replica, averaged over time."""

    def document(self) -> dict[str, float]:
        return asdict(self)


def of_reality(results: Sequence[RequestResult], samples: Sequence[Sample]) -> Measures:
    """``samples`` begin before the first request and end after the last answer; raises ``ValueError`` for a loss."""
    failed = [result for result in results if result.outcome is not RequestEnd.COMPLETED]
    if failed:
        raise ValueError(f"{len(failed)} of {len(results)} requests did not complete: {failed[0].error}")
    begin = min(result.start for result in results)
    end = max(result.start + result.latency for result in results)
    during = [sample for sample in samples if begin <= sample.time <= end]
    if not during:
        raise ValueError(f"no sample of the engines within {end - begin:.1f} s of traffic")
    first, last = samples[0].engines, samples[-1].engines
    if [stats.instance for stats in first] != [stats.instance for stats in last]:
        raise ValueError("an engine started anew during the run")

    def grown(name: str) -> int:
        return sum(getattr(b, name) - getattr(a, name) for a, b in zip(first, last, strict=True))

    return Measures(
        output_tokens_per_second=sum(result.output_tokens for result in results) / (end - begin),
        mean_queue_depth=statistics.mean(sum(stats.waiting for stats in sample.engines) for sample in during),
        preemption_rate=grown("requests_preempted_total") / max(grown("requests_finished_total"), 1),
        median_ttft_seconds=statistics.median(result.ttft or 0.0 for result in results),
        mean_itl_seconds=statistics.mean(itl for result in results for itl in result.itls),
        preemptions=grown("preemptions_total"),
        requests=len(results),
        seconds=end - begin,
        mean_cap=statistics.mean(stats.live_cap for sample in during for stats in sample.engines),
    )


def of_simulation(outcome: Simulated) -> Measures:
    """Raises ``ValueError`` if any request was lost."""
    if outcome.lost:
        raise ValueError(f"{outcome.lost} of {outcome.requests} requests did not complete in the simulation")
    series, ttft, itl = outcome.series, outcome.find_percentiles("ttft"), outcome.find_percentiles("itl")
    during = [i for i, time in enumerate(series.time) if time <= outcome.seconds]
    return Measures(
        output_tokens_per_second=outcome.totals.generation_tokens / outcome.seconds,
        mean_queue_depth=statistics.mean(series.waiting[i] for i in during),
        preemption_rate=outcome.preemption_rate,
        median_ttft_seconds=(ttft["p50"] or 0.0) / 1000,
        mean_itl_seconds=(itl["mean"] or 0.0) / 1000,
        preemptions=outcome.totals.preemptions,
        requests=outcome.requests,
        seconds=outcome.seconds,
        mean_cap=statistics.mean(series.cap[i] for i in during),
    )


def average(runs: Sequence[Measures]) -> Measures:
    """Each number's mean over ``runs``."""
    return Measures(*(statistics.fmean(values) for values in zip(*(asdict(run).values() for run in runs), strict=True)))


def ratios(simulated: Measures, real: Measures) -> dict[str, float | None]:
    """Simulated over real; None where the real number is 0 and the simulated one is not, 1 where both are."""
    found: dict[str, float | None] = {}
    for name in COMPARED:
        mine, other = getattr(simulated, name), getattr(real, name)
        found[name] = mine / other if other else (1.0 if not mine else None)
    return found
