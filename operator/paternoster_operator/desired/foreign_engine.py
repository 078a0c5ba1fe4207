"""What differs in the pods of a fleet whose engine is not ours: image, command, environment, plugin and probes."""

from typing import Any

from paternoster_contract import labels
from paternoster_contract.settings.model import model_path
from paternoster_operator.api.pod.owned import TMP_FOLDER
from paternoster_operator.api.v1alpha1 import LLMDeployment, LLMDeploymentSpec
from paternoster_operator.desired.engine_args import Installation, engine_args
from paternoster_operator.desired.model_source import engine_source
from paternoster_operator.engines.adapter import Actuator, RuntimeType
from paternoster_operator.engines.kinds import KINDS
from paternoster_operator.engines.openai_arguments import MODEL_ENV

PLUGIN_VOLUME = "plugin"
PLUGIN_FOLDER = "/opt/paternoster/plugin"
PLUGIN_CONTAINER = "plugin"
PLUGIN_SIZE = "8Mi"


def is_foreign(spec: LLMDeploymentSpec) -> bool:
    return spec.engine.runtime.type is not RuntimeType.PATERNOSTER


def has_plugin(spec: LLMDeploymentSpec) -> bool:
    """Whether the operator's plugin moves the engine's limits."""
    return KINDS[spec.engine.runtime.type].actuator is Actuator.PLUGIN


def engine_annotations(spec: LLMDeploymentSpec) -> dict[str, Any]:
    """Metadata of a pod whose engine is not ours, by which the operator talks to it after the manifest has changed."""
    if not is_foreign(spec):
        return {}
    annotations = {labels.ENGINE_TYPE: str(spec.engine.runtime.type)}
    if (upstream := spec.engine.runtime.upstream_model) is not None:
        annotations[labels.UPSTREAM_MODEL] = upstream.replace(f"$({MODEL_ENV})", model_path(engine_source(spec)))
    return {"annotations": annotations}


def foreign_container(resource: LLMDeployment, installation: Installation) -> dict[str, Any]:
    """Fields of the engine's container, in place of those of our own engine.

    It has one port: the operator is answered on that of the API. Caches of compiled code are in /tmp, the only
    folder that can be written; a user without an entry in /etc/passwd needs a name for them.
    """
    runtime = resource.spec.engine.runtime
    launch = KINDS[runtime.type].launch(engine_args(resource, installation), runtime.args)
    given = {variable.name: variable.value for variable in runtime.env}
    plugin = {"PYTHONPATH": PLUGIN_FOLDER} if has_plugin(resource.spec) else {}
    env = {"HOME": TMP_FOLDER, "USER": "paternoster", **launch.env, **given, **plugin}
    image = {} if runtime.image is None else {"image": runtime.image}
    command = list(runtime.command or launch.command)
    return {
        **image,
        "imagePullPolicy": resource.spec.engine.image_pull_policy.value,
        **({"command": command} if command else {}),
        "args": list(launch.args),
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "ports": [{"name": labels.ENGINE_PORT_NAME, "containerPort": labels.ENGINE_PORT, "protocol": "TCP"}],
    }


def plugin_containers(spec: LLMDeploymentSpec, image: str, security: dict[str, Any]) -> list[dict[str, Any]]:
    """The init container that writes the plugin; none where there is no plugin."""
    if not has_plugin(spec):
        return []
    return [
        {
            "name": PLUGIN_CONTAINER,
            "image": image,
            "imagePullPolicy": spec.engine.image_pull_policy.value,
            "command": ["paternoster", "vllm-plugin"],
            "args": [PLUGIN_FOLDER],
            "resources": {
                "requests": {"cpu": "10m", "memory": "64Mi", "ephemeral-storage": PLUGIN_SIZE},
                "limits": {"memory": "256Mi", "ephemeral-storage": "64Mi"},
            },
            "securityContext": security,
            "volumeMounts": [{"name": PLUGIN_VOLUME, "mountPath": PLUGIN_FOLDER}],
        }
    ]


def plugin_volumes(spec: LLMDeploymentSpec) -> list[dict[str, Any]]:
    return [{"name": PLUGIN_VOLUME, "emptyDir": {"sizeLimit": PLUGIN_SIZE}}] if has_plugin(spec) else []


def plugin_mounts(spec: LLMDeploymentSpec) -> list[dict[str, Any]]:
    return [{"name": PLUGIN_VOLUME, "mountPath": PLUGIN_FOLDER, "readOnly": True}] if has_plugin(spec) else []
