"""All children of an LLMDeployment."""

from typing import Any

from paternoster_contract import labels
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.deployment import build_deployment
from paternoster_operator.desired.pdb import build_pdb
from paternoster_operator.desired.service import build_service


def build_children(
    resource: LLMDeployment, replicas: int, engine_image: str = labels.DEFAULT_ENGINE_IMAGE
) -> list[dict[str, Any]]:
    """What to apply, in order; the Deployment comes last, when what its pods rely on is there."""
    return [build_service(resource), build_pdb(resource), build_deployment(resource, replicas, engine_image)]
