"""Phases of one request in an engine: where its time went. The gateway passes none of it on to clients.

They are in the header :data:`PHASES` of an answer, which a stream sends with its first token; of a stream with a
journal once more when its last token has come, as a frame by itself that begins with :data:`PHASES_COMMENT`.
"""

import re
from enum import StrEnum
from typing import NamedTuple

PHASES = "X-Paternoster-Phases"
PHASES_COMMENT = b": phases "
MAX_SECONDS = 1e6
_FORM = re.compile(
    r"queue=([0-9]{1,7}\.[0-9]{1,6}), waited_for=([a-z_]{1,32}), prefill=([0-9]{1,7}\.[0-9]{1,6}), "
    r"preemptions=([0-9]{1,6})"
)


class WaitReason(StrEnum):
    """Reason for which the first requests of an engine's queue waited before one was admitted."""

    STEP = "step"
    """Nothing: the request came within a step."""
    SLOTS = "slots"
    """All sequences of the live cap ran."""
    TENANT_SLOTS = "tenant_slots"
    """All sequences that its tenant may run."""
    KV_BLOCKS = "kv_blocks"
    TOKEN_BUDGET = "token_budget"
    """Tokens of the step: other prompts took them."""
    PREFIX = "prefix"
    """Another request computed the beginning of the same prompt."""


class RequestPhases(NamedTuple):
    """Phases of one request at one engine; of several sequences, the longest of each."""

    queue_seconds: float
    waited_for: WaitReason
    prefill_seconds: float
    """Time from its admission to its first token."""
    preemptions: int

    def encode(self) -> str:
        """The value of :data:`PHASES`."""
        queue, prefill = (min(max(0.0, seconds), MAX_SECONDS) for seconds in (self.queue_seconds, self.prefill_seconds))
        return (
            f"queue={queue:.4f}, waited_for={self.waited_for}, prefill={prefill:.4f}, "
            f"preemptions={min(self.preemptions, 999_999)}"
        )

    @classmethod
    def decode(cls, value: str) -> "RequestPhases | None":
        """The opposite of :meth:`encode`; None for anything else, also of another release."""
        found = _FORM.fullmatch(value)
        if found is None or found[2] not in list(WaitReason):
            return None
        return cls(float(found[1]), WaitReason(found[2]), float(found[3]), int(found[4]))
