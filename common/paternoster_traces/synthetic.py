"""A synthetic chat workload shaped like the Azure LLM inference conversation trace of November 2023.

Lengths are drawn through the trace's measured quantiles, interpolated on a log scale, with its (weak) rank
correlation between prompt and output; arrivals are a gamma renewal process with its rate and burstiness.
The trace: github.com/Azure/AzurePublicDataset, CC-BY 4.0, described in Splitwise (ISCA'24).
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from paternoster_traces.trace import TraceRow

Quantiles = tuple[tuple[float, float], ...]
"""Pairs of (share of requests, tokens), ascending, from share 0 to share 1."""


@dataclass(frozen=True)
class Workload:
    """A distribution of requests."""

    prompt: Quantiles
    output: Quantiles
    rank_correlation: float
    """Spearman's, between prompt and output length."""
    rate: float
    """Requests per second."""
    burstiness: float
    """Shape of the gamma distribution of gaps: 1 is Poisson, below 1 is burstier."""


AZURE_CONVERSATION = Workload(
    prompt=(
        (0, 2), (0.01, 29), (0.05, 181), (0.1, 207), (0.25, 396), (0.5, 1020),
        (0.75, 1189), (0.9, 2735), (0.95, 4083), (0.99, 4142), (1, 14050),
    ),
    output=(
        (0, 7), (0.01, 16), (0.05, 41), (0.1, 54), (0.25, 85), (0.5, 129),
        (0.75, 395), (0.9, 424), (0.95, 451), (0.99, 601), (1, 1000),
    ),
    rank_correlation=0.073,
    rate=5.53,
    burstiness=0.835,
)  # fmt: skip


def generate_rows(count: int, *, seed: int = 0, workload: Workload = AZURE_CONVERSATION) -> list[TraceRow]:
    """``count`` requests in order of arrival, the first at 0 s; the same seed gives the same requests."""
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((2, count))
    # a Gaussian copula: Pearson's r of the normals that gives this Spearman's rho
    r = 2 * np.sin(np.pi * workload.rank_correlation / 6)
    normal[1] = r * normal[0] + np.sqrt(1 - r * r) * normal[1]
    prompts = _draw_lengths(normal[0], workload.prompt)
    outputs = _draw_lengths(normal[1], workload.output)
    times = draw_arrivals(count, rate=workload.rate, burstiness=workload.burstiness, rng=rng)
    return [
        TraceRow(float(time), int(prompt), int(output))
        for time, prompt, output in zip(times, prompts, outputs, strict=True)
    ]


def draw_arrivals(count: int, *, rate: float, burstiness: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Arrival times in seconds from 0, ``rate`` a second on average; all 0 when the rate is infinite."""
    if np.isinf(rate):
        return np.zeros(count)
    gaps = rng.gamma(shape=burstiness, scale=1 / (rate * burstiness), size=count)
    times: NDArray[np.float64] = np.cumsum(gaps)
    times -= times[0]
    return times


def _draw_lengths(normal: NDArray[np.float64], quantiles: Quantiles) -> NDArray[np.int64]:
    shares, tokens = zip(*quantiles, strict=True)
    cdf = NormalDist().cdf
    uniform = np.array([cdf(value) for value in normal])
    lengths: NDArray[np.float64] = np.exp(np.interp(uniform, shares, np.log(tokens)))
    return np.rint(lengths).astype(np.int64)
