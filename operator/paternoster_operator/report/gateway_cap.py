"""The live cap as gateways hold it where no call moves an engine's own: a bound for each replica, with a part for each.

Pure. Gateways read it from the routing table, whose row is made of the status.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paternoster_contract.stats import GatewayStats
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.engines.adapter import Actuator, EngineKind
from paternoster_operator.engines.kinds import KINDS

MIN_GAIN = 0.1
"""Parts change for a gateway that holds requests and gains more than this share of its own: each change is written."""
SPARE_DIVISOR = 8
"""The cap over the most requests beyond it that an engine gets for senders with a small part."""
MOST_GATEWAYS = 256
"""In the status; any other one has a part of 1."""


@dataclass(frozen=True, slots=True)
class GatewayCap:
    """A live cap, and how gateways share it."""

    max_in_flight: int
    """Requests that a replica gets at a time from all gateways."""
    reason: str
    """Why no call moves the cap of the engines."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Part of each gateway, by its instance; one that is not named has 1, and all of it where none is named."""

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> "GatewayCap | None":
        """Read what was written last; None where gateways hold none."""
        written = status.get("gatewayCap")
        return None if written is None else cls(written["maxInFlight"], written["reason"], written.get("parts", {}))

    def count_spare(self, capacity: int) -> int:
        """Requests beyond the cap that each gateway may send an engine of ``capacity``, of senders with a small part.

        All together are at most an eighth of the cap.
        """
        gateways = max(len(self.parts), 1)
        return int(gateways <= min(capacity - self.max_in_flight, self.max_in_flight // SPARE_DIVISOR))

    def to_status(self) -> dict[str, Any]:
        return {"maxInFlight": self.max_in_flight, "parts": dict(self.parts), "reason": self.reason}


def find_gateway_cap(
    resource: LLMDeployment, faults: Mapping[str, str], reporting: bool, target: int, gateways: Sequence[GatewayStats]
) -> GatewayCap | None:
    """The live cap for gateways to hold, ``target`` as decided; None where a call moves that of the engines.

    ``faults`` and ``reporting`` are those of :func:`find_immovable`.
    """
    before = GatewayCap.from_status(resource.status)
    kind = KINDS[resource.spec.engine.runtime.type]
    reason = find_immovable(kind, faults, reporting, None if before is None else before.reason)
    if reason is None:
        return None
    places = max(min(target, resource.spec.engine.max_num_seqs), 1)
    parts = share_places(places, gateways, resource.metadata.uid, {} if before is None else before.parts)
    return GatewayCap(places, reason, parts)


def find_immovable(kind: EngineKind, faults: Mapping[str, str], reporting: bool, before: str | None) -> str | None:
    """Why no call moves the live cap of all engines of a fleet; None where calls do.

    ``faults`` are those of its engines by pod, ``reporting`` is whether one of them reports, ``before`` what was found
    last: it holds while no engine answers.
    """
    if kind.actuator is Actuator.GATEWAY:
        return f"engines of type {kind.type} have no live limits"
    if kind.actuator is Actuator.ADMIN_API:
        return None
    if faults:
        pod = min(faults)
        return f"{pod}: {faults[pod]}"[:1000]
    return None if reporting else before


def share_places(
    places: int, gateways: Sequence[GatewayStats], fleet: str, before: Mapping[str, int]
) -> dict[str, int]:
    """The part of each gateway in ``places``, by its requests for the LLMDeployment with the uid ``fleet``.

    Every gateway has 1 at least, so that more gateways than places exceed them. ``before`` stays while no gateway
    answers, and while none that holds requests would gain more than :data:`MIN_GAIN`.
    """
    if not gateways:
        return dict(before)
    demand, held = {}, {}
    for stats in sorted(gateways, key=lambda stats: stats.instance)[:MOST_GATEWAYS]:
        numbers = [each for each in stats.models.values() if each.fleet == fleet]
        held[stats.instance] = sum(each.held for each in numbers)
        demand[stats.instance] = 1 + held[stats.instance] + sum(each.in_flight for each in numbers)
    parts = _divide_places(places, demand)
    if before.keys() == parts.keys() and sum(before.values()) == sum(parts.values()):
        gains = [name for name, part in parts.items() if held[name] and part > before[name] * (1 + MIN_GAIN)]
        return parts if gains else dict(before)
    return parts


def _divide_places(places: int, demand: Mapping[str, int]) -> dict[str, int]:
    """``places`` in whole parts of at least 1, as close to the shares of ``demand`` as that allows."""
    spare, total = max(places - len(demand), 0), sum(demand.values())
    parts = {name: 1 + spare * wanted // total for name, wanted in demand.items()}
    left = max(places, len(demand)) - sum(parts.values())
    rests = sorted(demand, key=lambda name: (-(spare * demand[name] % total), name))
    return {name: part + (name in rests[:left]) for name, part in parts.items()}
