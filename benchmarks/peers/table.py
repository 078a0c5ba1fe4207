"""Medians of the repetitions with their spread, and the ratio to ours."""

from collections.abc import Sequence

from harness.results import markdown_table, spread
from paternoster_load.reports.spread import Spread
from peers.parts import Part

COLUMNS = (
    "at once", "peer", "precision", "runs", "output tokens/s", "ours / it", "TTFT p50 / p99, s", "ITL p50 / p99, ms",
    "peak MiB", "other cores",
)  # fmt: skip


def markdown(parts: Sequence[Part], ours: str) -> str:
    """One row for each concurrency and peer, the most requests at once first, the fastest peer first."""
    groups: dict[tuple[int, str], list[Part]] = {}
    for part in parts:
        groups.setdefault((part.concurrency, part.peer), []).append(part)
    ordered = sorted(groups.items(), key=lambda item: (-item[0][0], -_median(item[1], "tokens_per_second")))
    lines = []
    for (concurrency, peer), runs in ordered:
        ratio = ratio_to(groups.get((concurrency, ours), []), runs)
        first = runs[0]
        lines.append((
            f"{concurrency} ({first.requests} requests)" if first.requests < 64 else str(concurrency),
            peer, first.precision, str(len(runs)), spread([run.tokens_per_second for run in runs], 0),
            "" if ratio is None or peer == ours else f"{ratio.median:.2f} ({ratio.least:.2f} to {ratio.most:.2f})",
            f"{_median(runs, 'ttft_p50_ms') / 1000:.2f} / {_median(runs, 'ttft_p99_ms') / 1000:.2f}",
            f"{_median(runs, 'itl_p50_ms'):.0f} / {_median(runs, 'itl_p99_ms'):.0f}",
            f"{max(run.peak_mib for run in runs):,.0f}", f"{max(run.other_cores for run in runs):.2f}",
        ))  # fmt: skip
    return markdown_table(COLUMNS, lines)


def ratio_to(ours: Sequence[Part], theirs: Sequence[Part]) -> Spread | None:
    """Our output tokens per second over theirs, repetition by repetition; None when they have none in common."""
    mine = {part.repetition: part.tokens_per_second for part in ours}
    ratios = [mine[p.repetition] / p.tokens_per_second for p in theirs if p.repetition in mine and p.output_tokens]
    return Spread.from_values(ratios) if ratios else None


def _median(runs: Sequence[Part], name: str) -> float:
    return Spread.from_values([getattr(run, name) for run in runs]).median
