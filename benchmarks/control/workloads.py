"""Requests of the scenarios that the bench's traces and its synthetic conversation do not give."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from paternoster_traces.synthetic import Workload
from paternoster_traces.trace import TraceRow

REASONING = Workload(
    prompt=((0, 20), (0.1, 80), (0.5, 250), (0.9, 900), (0.99, 2500), (1, 4000)),
    output=((0, 100), (0.1, 600), (0.5, 2000), (0.9, 4500), (0.99, 6000), (1, 6500)),
    rank_correlation=0.3,
    rate=1.0,
    burstiness=1.0,
)
"""Short questions with long answers, as reasoning models give: requests grow in memory long after they were admitted,
so that a batch which fits when it starts does not fit later, and a full one on the 8B profile is preempted. The
quantiles are chosen, not measured."""

SHORT_ANSWERS = replace(REASONING, output=((0, 10), (0.1, 40), (0.5, 200), (0.9, 700), (1, 1500)))
"""Questions of :data:`REASONING`, answered at once. The quantiles are chosen, not measured."""

CODE = Workload(
    prompt=((0, 3), (0.1, 400), (0.5, 1500), (0.9, 4400), (0.99, 7400), (1, 7400)),
    output=((0, 1), (0.1, 5), (0.5, 13), (0.9, 60), (0.99, 260), (1, 1000)),
    rank_correlation=0.0,
    rate=1.0,
    burstiness=1.0,
)
"""Code completion: medians of 1,500 and 13 tokens are those of Azure's production (Splitwise, ISCA 2024), and the other
quantiles are chosen so that the means are about 2,000 and 28."""

JITTER_SECONDS = 2.0


def thickened(rows: Sequence[TraceRow], copies: int, *, seed: int) -> Iterator[TraceRow]:
    """A trace with ``copies`` times the traffic and the same shape in time, in order of arrival.

    Each row comes again a moment later, with the lengths of a row drawn from the whole trace; playing a trace faster
    would make its hours, and the fleet's reaction to them, shorter.
    """
    rng = np.random.default_rng(seed)
    many = list(rows)
    for _ in range(copies - 1):
        others = rng.permutation(len(rows))
        late = rng.uniform(0, JITTER_SECONDS, len(rows))
        many += [
            replace(rows[int(other)], arrival_s=row.arrival_s + float(delay))
            for row, other, delay in zip(rows, others, late, strict=True)
        ]
    yield from sorted(many, key=lambda row: row.arrival_s)
