"""What a fleet costs, from the price of a GPU hour and the GPUs its pods hold. Pure."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.observe import Observed

_DIGITS = Decimal("0.0001")
_SECONDS_PER_HOUR = 3600
_MILLION = 1_000_000


def compute_economics(spec: LLMDeploymentSpec, observed: Observed, load: Mapping[str, Any]) -> dict[str, Any] | None:
    """As in the status; None without ``spec.cost``.

    Allocation is what counts: a GPU costs from the moment a pod holds it, also while the pod loads or drains. ``load``
    is that of the status, so that both are written together.
    """
    if spec.cost is None:
        return None
    gpus = spec.resources.gpu.count * sum(pod.holds_devices for pod in observed.pods)
    per_hour = gpus * Decimal(spec.cost.gpu_hour)
    document: dict[str, Any] = {
        "basis": "Allocation",
        "currency": spec.cost.currency,
        "gpus": gpus,
        "costPerHour": str(per_hour.quantize(_DIGITS)),
    }
    tokens_per_hour = load.get("generationTokensPerSecond", 0) * _SECONDS_PER_HOUR
    if tokens_per_hour:
        document["costPerMillionOutputTokens"] = str((per_hour * _MILLION / tokens_per_hour).quantize(_DIGITS))
    return document
