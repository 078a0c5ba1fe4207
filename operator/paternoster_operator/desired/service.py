"""The engines' Service."""

from typing import Any

from paternoster_contract import labels
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.foreign_engine import is_foreign
from paternoster_operator.desired.ownership import child_metadata, pod_selector


def build_service(resource: LLMDeployment) -> dict[str, Any]:
    """A headless Service: one DNS name for all engines, for clients that balance by themselves."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(resource),
        "spec": {
            "clusterIP": "None",
            # An engine that is not ours listens at addresses of one family.
            **({} if is_foreign(resource.spec) else {"ipFamilyPolicy": "PreferDualStack"}),
            "selector": pod_selector(resource),
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
