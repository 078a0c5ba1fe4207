"""A score like any other, for the tests of the comparison: what matters is replaced."""

from control.evaluate import Score

BLANK = Score(
    requests=100,
    lost=0,
    slo_attainment=1.0,
    ttft_attainment=1.0,
    itl_attainment=1.0,
    ttft_p99_ms=1.0,
    itl_p99_ms=1.0,
    preemption_rate=0.0,
    recomputed_tokens=0,
    gpu_hours=1.0,
    scale_events=0,
    cap_events=0,
)
