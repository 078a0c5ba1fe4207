"""The placement of a pod as the scheduler sees it: where it may run, and what resources it requests. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from paternoster_contract.quantity import parse_quantity

_FIELDS = ("nodeSelector", "affinity", "topologySpreadConstraints", "runtimeClassName", "schedulerName")
_FROM_NODES = "node.kubernetes.io/"
"""Prefix of taints whose tolerations admission adds to every pod."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of one pod, or of the pods of one template."""

    where: Mapping[str, Any] = field(default_factory=dict)
    """Everything that restricts the nodes, including claims of volumes and devices."""
    requests: Mapping[str, Fraction] = field(default_factory=dict)
    """Requests of the whole pod, without quantities that cannot be parsed."""

    def fits_in_place_of(self, other: "Placement", resources: Iterable[str]) -> bool:
        """Whether a node that runs ``other`` has room for this pod once ``other`` has ended.

        ``resources``: those that the node lacks now; it has enough of the others for both pods.
        """
        return self.where == other.where and all(
            name in self.requests and self.requests[name] <= other.requests.get(name, Fraction(-1))
            for name in resources
        )


def read_placement(spec: Mapping[str, Any]) -> Placement:
    """Read the spec of a pod or of a Deployment's template, as the API server returns it with defaults."""
    where = {name: spec[name] for name in _FIELDS if spec.get(name)}
    where["tolerations"] = [
        each for each in spec.get("tolerations", ()) if not each.get("key", "").startswith(_FROM_NODES)
    ]
    where["volumeClaims"] = sorted(volume_claims(spec))
    where["devices"] = sorted(
        each.get("resourceClaimTemplateName") or each.get("resourceClaimName", "")
        for each in spec.get("resourceClaims", ())
    )
    return Placement(where, _sum_requests(spec))


def volume_claims(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the PersistentVolumeClaims that the pod mounts."""
    claims = (volume.get("persistentVolumeClaim") or {} for volume in spec.get("volumes", ()))
    return tuple(claim["claimName"] for claim in claims if "claimName" in claim)


def _sum_requests(spec: Mapping[str, Any]) -> dict[str, Fraction]:
    """Sum as Kubernetes does: containers and sidecars together, or the largest init container where that is more."""
    inits = spec.get("initContainers", ())
    sidecars = [each for each in inits if each.get("restartPolicy") == "Always"]
    total = {"pods": Fraction(1)}
    for container in (*spec.get("containers", ()), *sidecars):
        for name, amount in _read_amounts(container).items():
            total[name] = total.get(name, Fraction(0)) + amount
    for container in inits:
        if container not in sidecars:
            for name, amount in _read_amounts(container).items():
                total[name] = max(total.get(name, Fraction(0)), amount)
    return total


def _read_amounts(container: Mapping[str, Any]) -> dict[str, Fraction]:
    found = {}
    for name, text in (container.get("resources") or {}).get("requests", {}).items():
        try:
            found[name] = parse_quantity(str(text))
        except ValueError:
            continue
    return found
