"""Parts of the engines' pods, each made where its subject is; the Deployment puts them together in order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CONTAINER_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""Security context of every container that the operator adds."""


@dataclass(frozen=True, slots=True)
class PodParts:
    """Parts that one subject adds to a pod."""

    init_containers: Sequence[dict[str, Any]] = ()
    volumes: Sequence[dict[str, Any]] = ()
    mounts: Sequence[dict[str, Any]] = ()
    """Mounts of the engine's container."""
