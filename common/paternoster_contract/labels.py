"""Labels, annotations, ports and environment names on everything the operator makes."""

GROUP = "paternoster.dev"
VERSION = "v1alpha1"
KIND = "LLMDeployment"
PLURAL = "llmdeployments"
API_VERSION = f"{GROUP}/{VERSION}"
OBJECTS = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
"""The path of the list of LLMDeployments, as an API server has it."""
PODS = "/api/v1/pods"
"""Path of the list of pods."""

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "paternoster"
"""Value of MANAGED_BY and the operator's server-side-apply field manager."""

ENGINE_COMPONENT = "engine"
ENGINE_CONTAINER = "engine"
MODEL_CONTAINER = "model"
"""The init container that fetches a model before its engine starts."""
TEMPLATE_HASH = "pod-template-hash"
"""The label by which a Deployment distinguishes the ReplicaSets of its templates, and their pods."""
ENGINE_PORT_NAME = "http"
ENGINE_PORT = 8000
ADMIN_PORT_NAME = "admin"
ADMIN_PORT = 8001
"""Where an engine answers the operator; gateways and clients have no business there."""

KEYS_FOLDER = "/etc/paternoster/keys"
"""Below it a container has a folder of keys for each purpose; see :mod:`paternoster_contract.access.keys`."""
DRAIN = "paternoster.dev/drain"
"""Annotation of a pod: its engine is drained while this is "true", and admits again when it is not."""
SCALE_DOWN = "paternoster.dev/scale-down"
"""Annotation of a pod: since when gateways send it nothing, because the fleet has replicas to spare (RFC 3339)."""
LORA_ADAPTERS = "paternoster.dev/adapters"
"""Annotation of a pod: the adapters that its engine has loaded, after the number of the run that has them."""
ENGINE_TYPE = "paternoster.dev/engine-type"
"""Annotation of a pod whose engine is not ours: which it is, as ``engine.runtime.type`` was when the pod was made."""
BUCKET = "paternoster.dev/bucket"
"""Label of LLMDeployments and their children by which an operator's shards select what they watch."""
SHARD = "paternoster.dev/shard"
"""Label of an operator's pod: the number of its shard, where there are several."""
UPSTREAM_MODEL = "paternoster.dev/upstream-model"
"""Annotation of a pod: the model's name at its engine, where that is not the fleet's served name."""

DEFAULT_ENGINE_IMAGE = "paternoster-engine:0.2.0"
DEFAULT_FETCH_IMAGE = "paternoster-operator:0.2.0"
"""Image of the init container that fetches a model: the operator's, which has no torch."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation of a pod: of those that may go, the one that costs least goes (Kubernetes' ReplicaSet controller)."""

MODEL_EXIT_STATUS = 3
"""Exit status of an engine that cannot serve the model it was given."""

MODELS_ENV = "PATERNOSTER_MODELS"
"""Folder of fetched models."""
MODELS_LIMIT_ENV = "PATERNOSTER_MODELS_LIMIT"
"""Bytes that they may take in all."""
ADAPTERS_ENV = "PATERNOSTER_ADAPTERS"
"""Folder of adapters (LoRA) that an engine fetches; that of models where it is not set."""
ADAPTERS_LIMIT_ENV = "PATERNOSTER_ADAPTERS_LIMIT"
"""Bytes that they may take in all."""
ADMIN_KEY_ENV = "PATERNOSTER_ADMIN_KEY"
API_KEY_ENV = "PATERNOSTER_API_KEY"
FORCE_PREEMPT_ENV = "PATERNOSTER_FORCE_PREEMPT_EVERY"
"""Preempt one running sequence every N steps: a test hook for chaos runs, as in SGLang's TEST_RETRACT."""


def engine_labels(name: str) -> dict[str, str]:
    """Labels of the engine children of LLMDeployment ``name``; also their selector."""
    return {NAME: "paternoster-engine", INSTANCE: name, COMPONENT: ENGINE_COMPONENT, MANAGED_BY: MANAGER}
