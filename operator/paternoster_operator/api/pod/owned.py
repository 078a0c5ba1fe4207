"""What of an engine's pod is the operator's: a template that sets it is refused, with what to use instead."""

from collections.abc import Mapping

from paternoster_contract import labels
from paternoster_operator.api.rule import Rule
from paternoster_operator.api.types.model import FETCHED, REMOTE

TMP_FOLDER = "/tmp"
MODEL_FOLDER = "/mnt/model"
"""Where the volume of a model is mounted: a claim that has it, or the cache that it is fetched into."""
SHARED_MEMORY_FOLDER = "/dev/shm"
TMP_VOLUME, MODEL_VOLUME, SHARED_MEMORY_VOLUME = "tmp", "model", "shared-memory"
KEY_VOLUMES = ("api-keys", "admin-keys")
GPU_CLAIM = "gpu"
"""Name of the pod's resource claim."""

POD: Mapping[str, str] = {
    "activeDeadlineSeconds": "engines have no deadline",
    "automountServiceAccountToken": "engines have no token; a projected volume gives a container one",
    "hostNetwork": "the fleet's NetworkPolicy does not hold on a node's network",
    "resources": "use resources for the engine, and resources of each other container",
    "restartPolicy": "a Deployment's pods always restart",
    "serviceAccount": "use serviceAccountName",
    "terminationGracePeriodSeconds": "use drain.timeoutSeconds",
}
"""Fields of the pod's spec: what to know or to use instead."""
ENGINE: Mapping[str, str] = {
    "args": "use the fields of engine",
    "command": "use the fields of engine",
    "image": "use engine.image",
    "imagePullPolicy": "use engine.imagePullPolicy",
    "lifecycle": "use drain.timeoutSeconds",
    "livenessProbe": "the engine answers the operator's",
    "ports": "the engine listens where gateway and operator look for it",
    "readinessProbe": "the engine answers the operator's",
    "resources": "use resources",
    "restartPolicy": "an engine always restarts",
    "restartPolicyRules": "an engine always restarts",
    "startupProbe": "the engine answers the operator's",
    "terminationMessagePath": "the status tells the last lines of an engine's log",
    "terminationMessagePolicy": "the status tells the last lines of an engine's log",
}
"""Fields of the engine's container."""
FETCH: Mapping[str, str] = {
    "args": "use model.source",
    "command": "use model.source",
    "imagePullPolicy": "use engine.imagePullPolicy",
    "restartPolicy": "the engine starts when its model is there",
    "terminationMessagePath": "the status tells from there why a model could not be fetched",
    "terminationMessagePolicy": "the status tells from there why a model could not be fetched",
}
"""Fields of the init container that fetches the model."""
ONCE = ("priorityClassName", "runtimeClassName", "serviceAccountName")
"""Fields that spec has, too: one of the two may be set."""

_SPEC = "self.podTemplate.spec"
_FIELD = "podTemplate.spec"
_IS_ENGINE = f"c.name == '{labels.ENGINE_CONTAINER}'"
_IS_FETCH = f"c.name == '{labels.MODEL_CONTAINER}'"
_FETCHED = f"self.model.source.matches('{REMOTE}')"


def _each_item(field: str, condition: str) -> str:
    """``condition`` on each item ``c`` of a list of the pod's spec."""
    return f"!has({_SPEC}.{field}) || {_SPEC}.{field}.all(c, {condition})"


def _list_literal(values: tuple[str | int, ...]) -> str:
    return f"[{', '.join(repr(value) for value in values)}]"


_OWN_LABELS = (*labels.engine_labels(""), "pod-template-hash")
_OWN_VOLUMES = (TMP_VOLUME, *KEY_VOLUMES, MODEL_VOLUME, SHARED_MEMORY_VOLUME)
_OWN_PREFIX = f"{labels.GROUP}/"
_KEYS_ROOT = labels.KEYS_FOLDER.rsplit("/", 1)[0]
_PORTS = (labels.ENGINE_PORT, labels.ADMIN_PORT)
_PORT_NAMES = (labels.ENGINE_PORT_NAME, labels.ADMIN_PORT_NAME)
_OTHER_PORTS = (
    f"!has(c.ports) || c.ports.all(p, !(p.containerPort in {_list_literal(_PORTS)}) && "
    f"(!has(p.name) || !(p.name in {_list_literal(_PORT_NAMES)})))"
)

POD_TEMPLATE_RULES: tuple[Rule, ...] = (
    Rule(
        "!has(self.podTemplate.metadata.labels) || "
        f"self.podTemplate.metadata.labels.all(k, !(k in {_list_literal(_OWN_LABELS)}) && "
        f"!k.startsWith('{_OWN_PREFIX}'))",
        f"labels of podTemplate must be others than {', '.join(_OWN_LABELS)} and {_OWN_PREFIX}...: by these the pods "
        "are found",
        "podTemplate.metadata.labels",
    ),
    Rule(
        "!has(self.podTemplate.metadata.annotations) || "
        f"self.podTemplate.metadata.annotations.all(k, k != '{labels.DELETION_COST}' && "
        f"!k.startsWith('{_OWN_PREFIX}'))",
        f"annotations of podTemplate must be others than {labels.DELETION_COST} and {_OWN_PREFIX}...: the operator "
        "goes by these",
        "podTemplate.metadata.annotations",
    ),
    *(
        Rule(f"!has({_SPEC}.{field})", f"{field} of podTemplate must be unset: {instead}", f"{_FIELD}.{field}")
        for field, instead in POD.items()
    ),
    *(
        Rule(
            f"!has({_SPEC}.{field}) || !has(self.{field})",
            f"{field} must be set once, in spec or in podTemplate",
            f"{_FIELD}.{field}",
        )
        for field in ONCE
    ),
    Rule(
        f"!has({_SPEC}.nodeSelector) || !has(self.nodeSelector) || "
        f"{_SPEC}.nodeSelector.all(k, !(k in self.nodeSelector))",
        "labels of nodeSelector must be set once, in spec or in podTemplate",
        f"{_FIELD}.nodeSelector",
    ),
    *(
        Rule(
            _each_item("containers", f"!({_IS_ENGINE}) || !has(c.{field})"),
            f"{field} of podTemplate's container {labels.ENGINE_CONTAINER} must be unset: {instead}",
            f"{_FIELD}.containers[{labels.ENGINE_CONTAINER}].{field}",
        )
        for field, instead in ENGINE.items()
    ),
    Rule(
        _each_item(
            "containers",
            f"!({_IS_ENGINE}) || !has(c.volumeMounts) || c.volumeMounts.all(m, "
            f"!(m.mountPath in {_list_literal((TMP_FOLDER, MODEL_FOLDER, _KEYS_ROOT))}) && "
            f"!m.mountPath.startsWith('{_KEYS_ROOT}/') && "
            "m.mountPath.matches('^(/[^/]+)+$') && !m.mountPath.matches('/[.]{1,2}(/|$)'))",
        ),
        f"mountPaths of podTemplate's container {labels.ENGINE_CONTAINER} must be absolute, without '.', '..' and a "
        f"last slash, and others than {TMP_FOLDER}, {MODEL_FOLDER} and what is below {_KEYS_ROOT}: these are its own",
        f"{_FIELD}.containers[{labels.ENGINE_CONTAINER}].volumeMounts",
    ),
    *(
        Rule(
            _each_item("initContainers", f"!({_IS_FETCH}) || !has(c.{field})"),
            f"{field} of podTemplate's initContainer {labels.MODEL_CONTAINER} must be unset: {instead}",
            f"{_FIELD}.initContainers[{labels.MODEL_CONTAINER}].{field}",
        )
        for field, instead in FETCH.items()
    ),
    Rule(
        f"{_FETCHED} || " + _each_item("initContainers", f"!({_IS_FETCH})"),
        f"initContainers of podTemplate must have other names than {labels.MODEL_CONTAINER} unless model.source is "
        f"{FETCHED}: it fetches these",
        f"{_FIELD}.initContainers",
    ),
    Rule(
        f"!{_FETCHED} || " + _each_item("containers", f"!({_IS_FETCH})"),
        f"containers of podTemplate must have other names than {labels.MODEL_CONTAINER} where model.source is "
        f"{FETCHED}: that is who fetches these",
        f"{_FIELD}.containers",
    ),
    *(
        Rule(
            _each_item(field, f"!({which}) || !has(c.env) || c.env.all(e, e.name != '{labels.MODELS_ENV}')"),
            f"env of podTemplate's {field}[{name}] must not have {labels.MODELS_ENV}: use model.cache",
            f"{_FIELD}.{field}[{name}].env",
        )
        for field, name, which in (
            ("containers", labels.ENGINE_CONTAINER, _IS_ENGINE),
            ("initContainers", labels.MODEL_CONTAINER, _IS_FETCH),
        )
    ),
    Rule(
        _each_item(
            "initContainers",
            f"!({_IS_FETCH}) || !has(c.volumeMounts) || "
            f"c.volumeMounts.all(m, !(m.mountPath in {_list_literal((TMP_FOLDER, MODEL_FOLDER))}))",
        ),
        f"mountPaths of podTemplate's initContainer {labels.MODEL_CONTAINER} must be others than {TMP_FOLDER} and "
        f"{MODEL_FOLDER}: these are its own",
        f"{_FIELD}.initContainers[{labels.MODEL_CONTAINER}].volumeMounts",
    ),
    Rule(
        _each_item("initContainers", f"!({_IS_ENGINE})"),
        f"initContainers of podTemplate must have other names than {labels.ENGINE_CONTAINER}",
        f"{_FIELD}.initContainers",
    ),
    *(
        Rule(
            _each_item(field, f"{which} || has(c.image)"),
            f"each of podTemplate's {field} but {name} must have an image",
            f"{_FIELD}.{field}",
        )
        for field, name, which in (
            ("containers", labels.ENGINE_CONTAINER, _IS_ENGINE),
            ("initContainers", labels.MODEL_CONTAINER, _IS_FETCH),
        )
    ),
    *(
        Rule(
            _each_item(field, f"{_IS_ENGINE} || {_OTHER_PORTS}"),
            f"ports of podTemplate's {field} must be others than {_PORTS[0]} and {_PORTS[1]}, and named otherwise than "
            f"{_PORT_NAMES[0]} and {_PORT_NAMES[1]}: these are the engine's",
            f"{_FIELD}.{field}",
        )
        for field in ("containers", "initContainers")
    ),
    Rule(
        _each_item("volumes", f"!(c.name in {_list_literal(_OWN_VOLUMES)})"),
        f"volumes of podTemplate must have other names than {', '.join(_OWN_VOLUMES)}: the operator makes these",
        f"{_FIELD}.volumes",
    ),
    Rule(
        _each_item("resourceClaims", f"c.name != '{GPU_CLAIM}'"),
        f"resourceClaims of podTemplate must have other names than {GPU_CLAIM}: use resources.gpu.claimTemplateName",
        f"{_FIELD}.resourceClaims",
    ),
)
"""Rules on ``spec``; :mod:`paternoster_operator.api.pod.fields` has seen to types before."""
