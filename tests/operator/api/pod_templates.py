"""``spec.podTemplate``: what passes, what a rule refuses, what has another type, and what only the operator sees."""

from typing import Any

from paternoster_operator.api.pod.owned import ENGINE, FETCH, POD

Case = tuple[dict[str, Any], str]


def template(**spec: Any) -> dict[str, Any]:
    """A manifest's spec with this pod spec in its template."""
    return {"podTemplate": {"spec": spec}}


def engine(**fields: Any) -> dict[str, Any]:
    """Template with these fields of the engine's container."""
    return template(containers=[{"name": "engine", **fields}])


def fetch(**fields: Any) -> dict[str, Any]:
    """These fields of the init container that fetches a model."""
    return {**FETCHED, **template(initContainers=[{"name": "model", **fields}])}


FETCHED: dict[str, Any] = {"model": {"source": "hf://org/name"}}

GOOD: list[dict[str, Any]] = [
    fetch(
        env=[{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        resources={"limits": {"memory": "1Gi"}},
        volumeMounts=[{"name": "authorities", "mountPath": "/etc/authorities"}],
    ),
    template(containers=[{"name": "model", "image": "theirs"}]),
    {"podTemplate": {}},
    {"podTemplate": {"metadata": {"labels": {"team": "lifts"}, "annotations": {"note": "any text"}}}},
    engine(
        env=[{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        envFrom=[{"configMapRef": {"name": "settings"}}],
        securityContext={"runAsUser": 1000, "capabilities": {"add": ["IPC_LOCK"]}},
        volumeMounts=[{"name": "cache", "mountPath": "/tmp/cache"}, {"name": "dshm", "mountPath": "/dev/shm"}],
    ),
    template(
        volumes=[
            {"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "dshm", "emptyDir": {"medium": "Memory"}},
        ],
        hostIPC=True,
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}},
        securityContext={"fsGroup": 1000, "supplementalGroups": [7]},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        imagePullSecrets=[{"name": "registry"}],
        serviceAccountName="engines",
        nodeSelector={"pool": "gpu"},
    ),
    template(
        initContainers=[
            {"name": "proxy", "image": "proxy", "restartPolicy": "Always", "ports": [{"containerPort": 9000}]}
        ],
        containers=[
            {"name": "log", "image": "log", "command": ["tail"], "resources": {"limits": {"cpu": 1, "memory": "64Mi"}}}
        ],
    ),
    {"nodeSelector": {"zone": "a"}, "priorityClassName": "high", **template(nodeSelector={"pool": "gpu"})},
]

_VALUES: dict[str, Any] = {
    "activeDeadlineSeconds": 5, "args": ["--port", "1"], "automountServiceAccountToken": True, "command": ["sh"],
    "hostNetwork": True, "lifecycle": {}, "livenessProbe": {}, "ports": [{"containerPort": 9}], "readinessProbe": {},
    "resources": {"limits": {"cpu": "1"}}, "restartPolicyRules": [], "startupProbe": {},
    "terminationGracePeriodSeconds": 1,
}  # fmt: skip
"""Values of fields that are no strings."""

BROKEN_RULES: list[Case] = [
    *(
        (
            template(**{field: _VALUES.get(field, "Never")}),
            f"spec.podTemplate.spec.{field}: is {_VALUES.get(field, 'Never')!r}: {field} of podTemplate must be ",
        )
        for field in POD
    ),
    *(
        (
            engine(**{field: _VALUES.get(field, "Never")}),
            f"spec.podTemplate.spec.containers[engine].{field}: "
            + (f"is {_VALUES.get(field, 'Never')!r}: " if field != "restartPolicyRules" else "has : ")
            + f"{field} of podTemplate's container engine must be unset: ",
        )
        for field in ENGINE
    ),
    *(
        (
            fetch(**{field: _VALUES.get(field, "Never")}),
            f"spec.podTemplate.spec.initContainers[model].{field}: is {_VALUES.get(field, 'Never')!r}: "
            f"{field} of podTemplate's initContainer model must be unset: ",
        )
        for field in FETCH
    ),
    (
        template(initContainers=[{"name": "model"}]),
        "spec.podTemplate.spec.initContainers: has model: initContainers of podTemplate must have other names than "
        "model unless",
    ),
    (
        {**FETCHED, **template(containers=[{"name": "model", "image": "theirs"}])},
        "spec.podTemplate.spec.containers: has model: containers of podTemplate must have other names than model where",
    ),
    (
        engine(env=[{"name": "PATERNOSTER_MODELS", "value": "/models"}]),
        "spec.podTemplate.spec.containers[engine].env: has PATERNOSTER_MODELS: env of podTemplate's containers[engine]",
    ),
    (
        fetch(env=[{"name": "A", "value": "1"}, {"name": "PATERNOSTER_MODELS", "value": "/models"}]),
        "spec.podTemplate.spec.initContainers[model].env: has A, PATERNOSTER_MODELS: env of podTemplate's "
        "initContainers[model] must not have",
    ),
    *(
        (
            fetch(volumeMounts=[{"name": "own", "mountPath": path}]),
            "spec.podTemplate.spec.initContainers[model].volumeMounts: has own: mountPaths of podTemplate's "
            "initContainer model must be others than",
        )
        for path in ("/tmp", "/mnt/model")
    ),
    *(
        (
            {field: "a", **template(**{field: "b"})},
            f"spec.podTemplate.spec.{field}: is 'b': {field} must be set once, in spec or in podTemplate",
        )
        for field in ("priorityClassName", "runtimeClassName", "serviceAccountName")
    ),
    (
        {"nodeSelector": {"pool": "a"}, **template(nodeSelector={"pool": "b"})},
        "spec.podTemplate.spec.nodeSelector: is {'pool': 'b'}: labels of nodeSelector must be set once",
    ),
    *(
        (
            {"podTemplate": {"metadata": {"labels": {label: "other"}}}},
            f"spec.podTemplate.metadata.labels: is {{{label!r}: 'other'}}: labels of podTemplate must be others than",
        )
        for label in ("app.kubernetes.io/instance", "pod-template-hash", "paternoster.dev/role")
    ),
    (
        {"podTemplate": {"metadata": {"annotations": {"paternoster.dev/drain": "true"}}}},
        "spec.podTemplate.metadata.annotations: is {'paternoster.dev/drain': 'true'}: annotations of podTemplate must",
    ),
    *(
        (
            engine(volumeMounts=[{"name": "own", "mountPath": path}]),
            "spec.podTemplate.spec.containers[engine].volumeMounts: has own: mountPaths of podTemplate's container "
            "engine must be absolute",
        )
        for path in (
            "/tmp", "/tmp/", "//tmp", "/var/../tmp", "/./tmp", "tmp", "/", "/mnt/model", "/etc/paternoster",
            "/etc/paternoster/keys/admin",
        )
    ),
    (
        template(initContainers=[{"name": "engine", "image": "x"}]),
        "spec.podTemplate.spec.initContainers: has engine: "
        "initContainers of podTemplate must have other names than engine",
    ),
    *(
        (
            template(**{field: [{"name": "log"}]}),
            f"spec.podTemplate.spec.{field}: has log: each of podTemplate's {field} but {own} must have an image",
        )
        for field, own in (("containers", "engine"), ("initContainers", "model"))
    ),
    *(
        (
            template(**{field: [{"name": "log", "image": "x", "ports": [port]}]}),
            f"spec.podTemplate.spec.{field}: has log: ports of podTemplate's {field} must be others than 8000 and 8001",
        )
        for field in ("containers", "initContainers")
        for port in ({"containerPort": 8001}, {"containerPort": 9000, "name": "http"})
    ),
    *(
        (
            template(volumes=[{"name": "a", "emptyDir": {}}, {"name": name, "emptyDir": {}}]),
            f"spec.podTemplate.spec.volumes: has a, {name}: volumes of podTemplate must have other names than",
        )
        for name in ("tmp", "admin-keys", "model", "shared-memory")
    ),
    (
        template(resourceClaims=[{"name": "gpu", "resourceClaimName": "x"}]),
        "spec.podTemplate.spec.resourceClaims: has gpu: resourceClaims of podTemplate must have other names than gpu",
    ),
]  # fmt: skip

BAD_FIELDS: list[Case] = [
    ({"podTemplate": {"labels": {}}}, "spec.podTemplate.labels: unknown field: allowed here: metadata, spec"),
    (
        {"podTemplate": {"metadata": {"labels": {"a": "no label"}}}},
        "spec.podTemplate.metadata.labels.a: is 'no label': must match",
    ),
    (template(hostIpc=True), "spec.podTemplate.spec.hostIpc: unknown field: allowed here: activeDeadlineSeconds,"),
    (template(hostIPC="yes"), "spec.podTemplate.spec.hostIPC: is 'yes': must be true or false"),
    (template(volumes={}), "spec.podTemplate.spec.volumes: is {}: must be a list with at most 128 items"),
    (template(containers=[{"image": "x"}]), "spec.podTemplate.spec.containers[0].name: is missing: it is required"),
    (
        engine(volumeMounts=[{"name": "a"}]),
        "spec.podTemplate.spec.containers[0].volumeMounts[0].mountPath: is missing: it is required",
    ),
    (engine(env=[{"name": "A", "value": 1}]), "spec.podTemplate.spec.containers[0].env[0].value: is 1: must be a"),
    (
        template(containers=[{"name": f"log-{number}", "image": "x"} for number in range(17)]),
        "spec.podTemplate.spec.containers: is [{'name': 'log-0'",
    ),
    (
        engine(volumeMounts=[{"name": "a", "mountPath": "/" + "a" * 512}]),
        "spec.podTemplate.spec.containers[0].volumeMounts[0].mountPath: is '/aaa",
    ),
    (template(nodeSelector={"a": 1}), "spec.podTemplate.spec.nodeSelector.a: is 1: must be a string"),
]
"""An API server refuses these, too."""

INSIDE_OF_OBJECTS: list[Case] = [
    (
        template(volumes=[{"name": "a", "emptyDir": {"sizeLimit": "1Gx"}}]),
        "spec.podTemplate.spec.volumes[0].emptyDir.sizeLimit: is '1Gx': must be a quantity",
    ),
    (
        template(affinity={"nodeAfinity": {}}),
        "spec.podTemplate.spec.affinity.nodeAfinity: unknown field: allowed here: nodeAffinity, podAffinity",
    ),
    (
        engine(securityContext={"runAsUser": "root"}),
        "spec.podTemplate.spec.containers[0].securityContext.runAsUser: is 'root': must be an integer of 64 bits",
    ),
    (
        engine(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]),
        "spec.podTemplate.spec.containers[0].env[0].valueFrom.secretKeyRef.key: is missing: it is required",
    ),
    (
        engine(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
        "spec.podTemplate.spec.containers[0].env[1]: has name 'A', as an item before it: must be unique",
    ),
    (template(dnsConfig={"options": {}}), "spec.podTemplate.spec.dnsConfig.options: is {}: must be a list"),
]
"""Schema and rules do not look there: a cluster takes them, and the operator calls the resource invalid."""
