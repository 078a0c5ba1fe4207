"""AIBrix APA: in proportion to a metric per pod, with a tolerance and a limit on the step.

Source: vllm-project/aibrix at e3e10f9e, ``pkg/controller/podautoscaler/algorithm/apa.go``.

    r = value / target
    r > 1 + up tolerance     min(ceil(N r), ceil(N * max up rate))
    r < 1 - down tolerance   max(ceil(N r), floor(N / max down rate))
    otherwise                N

The value is the mean over the observation window. The sample manifest sets ``up-fluctuation-tolerance``; the source
reads ``scale-up-tolerance``, so a user of the sample gets the default, and so does this.
"""

import math

from peer_policies.aibrix import Observed, PodAutoscaler, PodAutoscalerSettings
from peer_policies.peer import Peer


def apa(settings: PodAutoscalerSettings, observed: Observed, replicas: int) -> tuple[int, float]:
    """Replicas wished for, and the value that decided."""
    ratio = observed.stable / settings.target_value
    wanted = math.ceil(replicas * ratio)
    if ratio > 1 + settings.scale_up_tolerance:
        return min(wanted, math.ceil(settings.max_scale_up_rate * replicas)), observed.stable
    if ratio < 1 - settings.scale_down_tolerance:
        return max(wanted, math.floor(replicas / settings.max_scale_down_rate)), observed.stable
    return replicas, observed.stable


AIBRIX_APA = Peer(
    name="aibrix-apa",
    settings=PodAutoscalerSettings,
    start=lambda settings, bounds, _: PodAutoscaler(settings, bounds, apa, in_proportion=True),
    search_space={
        "target_value": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
        "observe_window_seconds": (30.0, 60.0, 180.0, 300.0),
        "max_scale_down_rate": (1.25, 2.0),
        "scale_down_cooldown_seconds": (0.0, 300.0),
    },
)
