"""A policy as from a manifest, and signals of a fleet of two, for the tests of the law."""

from collections.abc import Iterable
from typing import Any

from paternoster_engine.core.step_work import StepSums, StepWork
from paternoster_operator.api.manifest import parse
from paternoster_operator.autoscaling.policy import ScalingPolicy
from paternoster_operator.autoscaling.signals import Signals


def policy(**spec: Any) -> ScalingPolicy:
    parts = {
        "engine": {"maxNumSeqs": 48},
        "autoscaling": {"minReplicas": 1, "maxReplicas": 10},
        "concurrency": {"mode": "Auto"},
        **spec,
    }
    document = {
        "apiVersion": "paternoster.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": "a"},
        "spec": {"model": {"source": "package://m"}, **parts},
    }
    return ScalingPolicy.from_spec(parse(document).spec)


def step_sums(steps: Iterable[tuple[StepWork, float]]) -> tuple[float, ...]:
    """As an engine reports them, of (work, seconds) of its steps."""
    sums = StepSums()
    for work, seconds in steps:
        sums.add(work, seconds)
    return sums.total


def decoding(base: float, slope: float) -> tuple[float, ...]:
    """Steps of 20 and of 60 sequences without context, each ``base + slope x sequences`` seconds long."""
    works = [StepWork(decode_sequences=n) for n in (20, 60)] * 10
    return step_sums((work, base + slope * work.decode_sequences) for work in works)


def seen(**values: Any) -> Signals:
    defaults = {"ready": 2, "fresh": True, "capacity": 96, "lowest_cap": 48, "highest_cap": 48, "engine_capacity": 48}
    return Signals(**{**defaults, **values})
