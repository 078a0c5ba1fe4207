"""Names, labels and owner of every child of a fleet."""

from dataclasses import dataclass
from typing import Any

from paternoster_contract import labels
from paternoster_operator.api.v1alpha1 import LLMDeployment


@dataclass(frozen=True, slots=True)
class ChildNames:
    """Names by which a fleet's children are found; made once for all of them."""

    name: str
    namespace: str
    fleet: str
    """Name of the LLMDeployment."""
    uid: str

    @classmethod
    def from_resource(cls, resource: LLMDeployment) -> "ChildNames":
        metadata = resource.metadata
        return cls(resource.child_name, metadata.namespace, metadata.name, metadata.uid)

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata with the owner, so that garbage collection removes the child with its LLMDeployment."""
        return {
            "name": self.name,
            "namespace": self.namespace,
            "labels": self.selector,
            "ownerReferences": [
                {
                    "apiVersion": labels.API_VERSION,
                    "kind": labels.KIND,
                    "name": self.fleet,
                    "uid": self.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        }

    @property
    def selector(self) -> dict[str, str]:
        """Labels that choose the engine pods."""
        return labels.engine_labels(self.fleet)
