"""AIBrix KPA: Knative's autoscaler with a stable and a panic window.

Source: vllm-project/aibrix at e3e10f9e, ``pkg/controller/podautoscaler/algorithm/kpa.go``.

    stable = ceil(value over the observation window / target), panic = ceil(value over the panic window / target),
    each kept within [floor(N / max down rate), max(1, ceil(N * max up rate))]
    panicking when panic value / stable value > panic threshold, or the stable value is 0
    desired = max(stable, panic) when panicking, else stable

Two things differ from Knative, and the source is followed in both. The most pods of a panic are not remembered, so a
panic does not keep pods. And the formula is Knative's for totals, while the value that reaches it is a mean over pods:
with the default metric it asks for one replica. ``sum_over_pods`` gives the formula the total it is meant for; it is
off, as in the source, and the search may switch it on.
"""

import math
from dataclasses import dataclass

from peer_policies.aibrix import Observed, PodAutoscaler, PodAutoscalerSettings
from peer_policies.peer import Peer


@dataclass(frozen=True, slots=True)
class KpaSettings(PodAutoscalerSettings):
    """A PodAutoscaler with ``scalingStrategy: KPA``."""

    sum_over_pods: bool = False
    """Feed the formula the sum over pods instead of their mean."""


def kpa(settings: PodAutoscalerSettings, observed: Observed, replicas: int) -> tuple[int, float]:
    """Replicas wished for, and the value that decided."""
    most = max(1, math.ceil(settings.max_scale_up_rate * replicas))
    least = math.floor(replicas / settings.max_scale_down_rate)
    stable = min(max(math.ceil(observed.stable / settings.target_value), least), most)
    panic = min(max(math.ceil(observed.panic / settings.target_value), least), most)
    if observed.stable <= 0 or observed.panic / observed.stable > settings.panic_threshold:
        return max(stable, panic), observed.panic
    return stable, observed.stable


AIBRIX_KPA = Peer(
    name="aibrix-kpa",
    settings=KpaSettings,
    start=lambda settings, bounds, _: PodAutoscaler(settings, bounds, kpa, summed=settings.sum_over_pods),
    search_space={
        "sum_over_pods": (False, True),
        "target_value": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
        "observe_window_seconds": (30.0, 60.0, 180.0),
        "panic_window_seconds": (10.0, 30.0, 60.0),
        "panic_threshold": (1.2, 1.5, 2.0),
    },
)
