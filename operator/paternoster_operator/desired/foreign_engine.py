"""What differs in the pods of a fleet whose engine is not ours: image, command, environment, plugin and probes."""

from copy import deepcopy
from typing import Any

from paternoster_contract import labels
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.settings.model import model_path
from paternoster_operator.api.pod.owned import TMP_FOLDER
from paternoster_operator.api.types.engine import Engine
from paternoster_operator.api.types.runtime import Runtime
from paternoster_operator.desired.pod_parts import CONTAINER_SECURITY, PodParts
from paternoster_operator.engines.kinds import KINDS
from paternoster_operator.engines.openai_arguments import MODEL_ENV

PLUGIN_VOLUME = "plugin"
PLUGIN_FOLDER = "/opt/paternoster/plugin"
PLUGIN_CONTAINER = "plugin"
PLUGIN_SIZE = "8Mi"


def foreign_annotations(runtime: Runtime, model: str) -> dict[str, str]:
    """Annotations by which the operator calls a pod after the manifest has changed; ``model``: its address there."""
    annotations = {labels.ENGINE_TYPE: str(runtime.type)}
    if runtime.upstream_model is not None:
        annotations[labels.UPSTREAM_MODEL] = runtime.upstream_model.replace(f"$({MODEL_ENV})", model_path(model))
    return annotations


def foreign_process(engine: Engine, settings: EngineArgs) -> dict[str, Any]:
    """Fields of the engine's container, in place of those of our own engine.

    It has one port: the operator is answered on that of the API. Caches of compiled code are in /tmp, the only
    folder that can be written; a user without an entry in /etc/passwd needs a name for them.
    """
    runtime = engine.runtime
    launch = KINDS[runtime.type].launch(settings, runtime.args)
    given = {variable.name: variable.value for variable in runtime.env}
    plugin = {"PYTHONPATH": PLUGIN_FOLDER} if runtime.has_plugin else {}
    env = {"HOME": TMP_FOLDER, "USER": "paternoster", **launch.env, **given, **plugin}
    image = {} if runtime.image is None else {"image": runtime.image}
    command = list(runtime.command or launch.command)
    return {
        **image,
        "imagePullPolicy": engine.image_pull_policy.value,
        **({"command": command} if command else {}),
        "args": list(launch.args),
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "ports": [{"name": labels.ENGINE_PORT_NAME, "containerPort": labels.ENGINE_PORT, "protocol": "TCP"}],
    }


def plugin_parts(engine: Engine, image: str) -> PodParts:
    """The init container that writes the plugin, and where the engine finds it; none where there is no plugin."""
    if not engine.runtime.has_plugin:
        return PodParts()
    container = {
        "name": PLUGIN_CONTAINER,
        "image": image,
        "imagePullPolicy": engine.image_pull_policy.value,
        "command": ["paternoster", "vllm-plugin"],
        "args": [PLUGIN_FOLDER],
        "resources": {
            "requests": {"cpu": "10m", "memory": "64Mi", "ephemeral-storage": PLUGIN_SIZE},
            "limits": {"memory": "256Mi", "ephemeral-storage": "64Mi"},
        },
        "securityContext": deepcopy(CONTAINER_SECURITY),
        "volumeMounts": [{"name": PLUGIN_VOLUME, "mountPath": PLUGIN_FOLDER}],
    }
    return PodParts(
        init_containers=[container],
        volumes=[{"name": PLUGIN_VOLUME, "emptyDir": {"sizeLimit": PLUGIN_SIZE}}],
        mounts=[{"name": PLUGIN_VOLUME, "mountPath": PLUGIN_FOLDER, "readOnly": True}],
    )
