"""The engines' Service."""

from typing import Any

from paternoster_contract import labels
from paternoster_operator.api.v1alpha1 import LLMDeployment, LLMDeploymentSpec
from paternoster_operator.desired.ownership import ChildNames


def build_service(spec: LLMDeploymentSpec, names: ChildNames) -> dict[str, Any]:
    """A headless Service: one DNS name for all engines, for clients that balance by themselves."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.metadata,
        "spec": {
            "clusterIP": "None",
            # An engine that is not ours listens at addresses of one family.
            **({} if spec.engine.runtime.is_foreign else {"ipFamilyPolicy": "PreferDualStack"}),
            "selector": names.selector,
            "ports": [
                {
                    "name": labels.ENGINE_PORT_NAME,
                    "port": labels.ENGINE_PORT,
                    "targetPort": labels.ENGINE_PORT_NAME,
                    "protocol": "TCP",
                }
            ],
        },
    }


def service_url(resource: LLMDeployment) -> str:
    """The Service's URL inside the cluster."""
    return f"http://{resource.child_name}.{resource.metadata.namespace}.svc:{labels.ENGINE_PORT}"
