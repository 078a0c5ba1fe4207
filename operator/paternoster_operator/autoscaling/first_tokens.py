"""Whether a queue matters: something always waits for a step, and users notice where first tokens come late."""

from paternoster_operator.autoscaling.policy import SloPolicy
from paternoster_operator.autoscaling.signals import Signals

IN_TIME = 1 / 3
"""Share of the limit up to which the mean time to a first token says that a queue is none: the limit is for the 95th
percentile, and of times that vary as those of independent arrivals that is three means."""


def first_tokens_in_time(slo: SloPolicy | None, signals: Signals) -> bool | None:
    """Whether first tokens come as soon as the user said; None where nothing was said, or none came."""
    if slo is None or slo.ttft is None or signals.first_token_seconds is None:
        return None
    return signals.first_token_seconds <= IN_TIME * slo.ttft


def queue_matters(slo: SloPolicy | None, signals: Signals) -> bool:
    """Whether requests wait for a replica, or at one and not known to be in time."""
    return signals.held > 0 or (signals.waiting > 0 and not first_tokens_in_time(slo, signals))
