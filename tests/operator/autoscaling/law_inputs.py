"""A policy as from a manifest, and signals of a fleet of two, for the tests of the law."""

from typing import Any

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


def seen(**values: Any) -> Signals:
    defaults = {"ready": 2, "fresh": True, "capacity": 96, "lowest_cap": 48, "highest_cap": 48, "engine_capacity": 48}
    return Signals(**{**defaults, **values})
