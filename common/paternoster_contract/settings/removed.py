"""Settings that are gone, and what takes their place: the same words for flags and for manifests."""

from collections.abc import Mapping

from pydantic import BeforeValidator

VICTIM_SUCCESSOR = "who has the fewest computed tokens is preempted, with order priority one of a lower class"
REMOVED_FLAGS: Mapping[str, str] = {
    "overlap": "was removed: steps are planned ahead on one CUDA device without swap, and nowhere else",
    "mode": "was removed: an engine admits requests at every step",
    "batch_size": "was removed: an engine admits requests at every step",
    "batch_wait": "was removed: an engine admits requests at every step",
    "victim": f"was removed: {VICTIM_SUCCESSOR}",
    "max_queued_per_user": "was renamed: use --max-queued-per-tenant",
    "max_running_per_user": "was renamed: use --max-running-per-tenant",
    "user_tokens_per_second": "was renamed: use --tenant-tokens-per-second",
    "user_token_burst": "was renamed: use --tenant-token-burst",
    "user_weights": "was renamed: use --tenant-weights",
}
"""Successor of each removed flag, by the name of the setting."""


REMOVED_ORDERS: Mapping[str, str] = {"deadline": "fcfs"}
"""Successors of values of ``order``; a request's ``deadline_ms`` holds in every order."""
REMOVED_ADMISSIONS: Mapping[str, str] = {"full-reserve": "no-evict"}
"""Successors of values of ``admission``; both never preempt, and ``no-evict`` admits more at once."""
REMOVED_PREEMPTIONS: Mapping[str, str] = {"auto": "swap"}
"""Successors of values of ``preemption``."""


def refuse_removed(successors: Mapping[str, str]) -> BeforeValidator:
    """Refuse values that a setting had: the error names what to use instead of each."""

    def check_value(value: object) -> object:
        if isinstance(value, str) and value in successors:
            raise ValueError(f"was removed: use {successors[value]!r}")
        return value

    return BeforeValidator(check_value)
