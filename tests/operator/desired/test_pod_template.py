"""A template over the pods that the operator builds: what is the operator's stays, what is the user's is there."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paternoster_contract import labels
from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.api.pod import owned
from paternoster_operator.api.pod.fields import POD_SPEC, Field, faults_of, fields_of, key_of
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.children import RootKeys, build_children
from paternoster_operator.desired.deployment import build_deployment
from paternoster_operator.desired.engine_args import Installation
from paternoster_operator.desired.ownership import ChildNames
from paternoster_operator.desired.pod_template import merge_fields, with_template

Resource = Callable[..., LLMDeployment]
BEHIND_GATEWAY = Installation(behind_gateway=True)
NAMES = st.sampled_from(["engine", "model", "log", "tmp", "shared-memory", "gpu", "http", "cache", "hostname"])
STRINGS = NAMES | st.sampled_from(["/tmp", "/dev/shm", "/data", "/etc/paternoster/keys/api", "TCP", "a/b"])
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": STRINGS,
    "boolean": st.booleans(),
    "int32": st.sampled_from([0, 1, 8000, 8001, 9000]),
    "int64": st.integers(0, 2**40),
    "quantity": st.sampled_from(["1Gi", 2, "500m"]),
    "int-or-string": st.sampled_from([8000, "http"]),
}


def values(field: Field, depth: int = 0) -> st.SearchStrategy[Any]:
    """What a field may hold, three objects deep."""
    if field.keys is not None:
        items = values(field.item, depth)
        if not field.keys:
            return st.lists(items, max_size=2)
        keys = field.keys
        return st.lists(items, max_size=3, unique_by=lambda item: key_of(item, keys))
    if field.mapping:
        return st.dictionaries(NAMES, values(field.item, depth), max_size=2)
    if field.scalar:
        return SCALARS[field.of]
    fields = fields_of(field.of)
    required = {name: values(inner, depth + 1) for name, inner in fields.items() if inner.required}
    if field.keys is None and depth == 1:
        required |= {name: NAMES for name in ("topologyKey", "ip", "devicePath") if name in fields}
        required |= {name: NAMES for name in ("name",) if name in fields and not fields[name].required}
    if depth == 3:
        return st.fixed_dictionaries(required)
    optional = {name: values(inner, depth + 1) for name, inner in fields.items() if name not in required}
    return st.lists(st.sampled_from(sorted(optional) or ["-"]), max_size=3, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries(required, optional={n: optional[n] for n in chosen if n in optional})
    )


def mostly(usual: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 4).flatmap(lambda chosen: usual if chosen else other)


def container(name: str, left_out: Iterable[str], **given: Any) -> st.SearchStrategy[dict[str, Any]]:
    """One with any fields but those."""
    fields = {each: values(inner, 2) for each, inner in fields_of("Container").items() if each not in left_out}
    return st.lists(st.sampled_from(sorted(fields)), max_size=3, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({each: fields[each] for each in chosen}).map(
            lambda some: {**some, "name": name, **given}
        )
    )


OF_ENGINE = container("engine", ("name", *owned.ENGINE))
CONTAINERS = mostly(
    st.tuples(OF_ENGINE, container("log", ("name", "ports"), image="log")).map(list) | OF_ENGINE.map(lambda one: [one]),
    values(fields_of(POD_SPEC)["containers"]),
)
FETCHING = container("model", ("name", "ports", "lifecycle", *owned.FETCH)).map(lambda one: [one])
OPEN = [name for name in fields_of(POD_SPEC) if name not in owned.POD and name != "containers"]
SPECS = st.builds(
    lambda usual, containers, fetching, other: {
        **usual,
        **({} if containers is None else {"containers": containers}),
        **({} if fetching is None else {"initContainers": fetching}),
        **other,
    },
    st.lists(st.sampled_from(OPEN), max_size=4, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: values(fields_of(POD_SPEC)[name]) for name in names})
    ),
    st.none() | CONTAINERS,
    st.none() | FETCHING,
    mostly(st.just({}), values(Field(POD_SPEC))),
)


def names_to(usual: str, other: str) -> st.SearchStrategy[dict[str, str]]:
    return mostly(st.just({usual: "x"}), st.just({other: "true"}))


TEMPLATES = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"labels": names_to("team", labels.INSTANCE), "annotations": names_to("note", labels.DRAIN)}
        ),
        "spec": SPECS,
    }
)
SLOW = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def fleet(template: dict[str, Any], **spec: Any) -> LLMDeployment:
    return parse_resource(
        {
            "apiVersion": labels.API_VERSION,
            "kind": labels.KIND,
            "metadata": {"name": "ride"},
            "spec": {"podTemplate": template, "model": {"source": "file:///m"}, **spec},
        }
    )


def pod_of(resource: LLMDeployment) -> dict[str, Any]:
    found: dict[str, Any] = build_deployment(resource, ChildNames.from_resource(resource), 1, BEHIND_GATEWAY)["spec"][
        "template"
    ]
    return found


def contains(whole: Any, part: Any, field: Field) -> bool:
    """Whether everything of ``part`` is in ``whole``, where ``field`` holds both."""
    if field.keys:
        by_key = {key_of(item, field.keys): item for item in whole}
        return all(contains(by_key.get(key_of(item, field.keys), {}), item, field.item) for item in part)
    if field.keys is not None:
        return all(item in whole for item in part)
    if field.mapping:
        return dict(part).items() <= dict(whole).items()
    if field.scalar:
        return bool(whole == part)
    return all(name in whole and contains(whole[name], each, fields_of(field.of)[name]) for name, each in part.items())


def engine_of(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = [each for each in pod["spec"]["containers"] if each["name"] == labels.ENGINE_CONTAINER]
    return found


def fetching(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """The container that fetches the model, where one does."""
    return [each for each in pod["spec"].get("initContainers", ()) if each["name"] == labels.MODEL_CONTAINER]


@SLOW
@given(template=TEMPLATES, gpus=st.sampled_from([0, 2]), source=st.sampled_from(["file:///m", "hf://org/name"]))
def test_what_is_the_operators_stays_and_what_is_the_users_is_there(
    template: dict[str, Any], gpus: int, source: str
) -> None:
    spec = {"resources": {"gpu": {"count": gpus}}, "model": {"source": source}}
    try:
        resource = fleet(template, **spec)
    except InvalidManifest:
        return
    plain, pod = pod_of(fleet({}, **spec)), pod_of(resource)
    assert plain["metadata"]["labels"].items() <= pod["metadata"]["labels"].items()
    assert template["metadata"]["labels"].items() <= pod["metadata"]["labels"].items()
    assert template["metadata"]["annotations"] == pod["metadata"].get("annotations", {})
    assert not any(note.startswith(labels.GROUP) for note in pod["metadata"].get("annotations", {}))
    for name in owned.POD:
        assert pod["spec"].get(name) == plain["spec"].get(name)
    assert pod["spec"]["containers"][0] == engine_of(pod), "the engine comes first"
    for name in owned.ENGINE:
        assert engine_of(pod).get(name) == engine_of(plain).get(name)
    of_template = {"/dev/shm", "shared-memory"}
    for here, there, key in (
        (pod["spec"]["volumes"], plain["spec"]["volumes"], "name"),
        (engine_of(pod)["volumeMounts"], engine_of(plain)["volumeMounts"], "mountPath"),
    ):
        entries = {each[key]: each for each in here}
        assert all(entries[each[key]] == each for each in there if each[key] not in of_template)
    for here, there in zip(fetching(pod), fetching(plain), strict=True):
        assert {name: here.get(name) for name in owned.FETCH} == {name: there.get(name) for name in owned.FETCH}
        assert all(each in here["env"] for each in there["env"])
        assert all(each in here["volumeMounts"] for each in there["volumeMounts"])
    mounts = [each["mountPath"] for each in engine_of(pod)["volumeMounts"]]
    assert sum(path.startswith("/etc/paternoster") for path in mounts) == 2
    ports = [port for each in pod["spec"]["containers"] for port in each.get("ports", ())]
    assert [port["containerPort"] for port in ports if port.get("name") in ("http", "admin")] == [8000, 8001]
    assert contains(pod["spec"], template["spec"], Field(POD_SPEC))
    assert faults_of(pod["spec"], "pod") == []


@given(
    env=st.lists(st.sampled_from(["A", "B", labels.MODELS_ENV, "HF_HUB_OFFLINE"]), max_size=2, unique=True),
    mounts=st.lists(st.sampled_from(["/tmp", "/mnt/model", "/data", "/mnt"]), max_size=2, unique=True),
    of_engine=st.booleans(),
)
def test_the_cache_stays_where_both_look_for_it(env: list[str], mounts: list[str], of_engine: bool) -> None:
    added = {
        "name": labels.ENGINE_CONTAINER if of_engine else labels.MODEL_CONTAINER,
        "env": [{"name": name, "value": "theirs"} for name in env],
        "volumeMounts": [{"name": "other", "mountPath": path} for path in mounts],
    }
    template = {"spec": {"containers" if of_engine else "initContainers": [added]}}
    model = {"source": "hf://org/name"}
    try:
        pod = pod_of(fleet(template, model=model))
    except InvalidManifest:
        return
    plain = pod_of(fleet({}, model=model))
    for here, there in ((fetching(pod)[0], fetching(plain)[0]), (engine_of(pod), engine_of(plain))):
        folder = {"name": labels.MODELS_ENV, "value": "/mnt/model"}
        assert folder in here["env"]
        assert folder in there["env"]
        assert all(each in here["volumeMounts"] for each in there["volumeMounts"])


@SLOW
@given(ours=SPECS, theirs=SPECS)
def test_a_merge_has_all_of_theirs_and_a_second_one_changes_nothing(ours: Any, theirs: Any) -> None:
    once = merge_fields(ours, theirs, Field(POD_SPEC))
    assert contains(once, theirs, Field(POD_SPEC))
    assert merge_fields(once, theirs, Field(POD_SPEC)) == once
    assert merge_fields(ours, {}, Field(POD_SPEC)) == ours


@pytest.mark.parametrize("empty", [{}, {"metadata": {"labels": {}}}, {"spec": {}}, {"spec": {"containers": []}}])
def test_an_empty_template_changes_no_pod(resource: Resource, empty: dict[str, Any]) -> None:
    roots = RootKeys(["admin-root"], ["gateway-root"])
    assert build_children(resource(podTemplate=empty), 1, roots) == build_children(resource(), 1, roots)


def test_parts_are_told_apart_by_what_kubernetes_tells_them_apart_by(resource: Resource) -> None:
    pod = pod_of(
        resource(
            tolerations=[{"key": "gpu", "operator": "Exists"}],
            imagePullSecrets=[{"name": "a"}],
            nodeSelector={"pool": "gpu"},
            podTemplate={
                "metadata": {"labels": {"team": "lifts"}, "annotations": {"note": "x"}},
                "spec": {
                    "containers": [
                        {"name": "log", "image": "log:1"},
                        {
                            "name": "engine",
                            "env": [{"name": "A", "value": "1"}],
                            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                            "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                        },
                    ],
                    "volumes": [{"name": "data", "emptyDir": {}}],
                    "securityContext": {"runAsUser": 7},
                    "tolerations": [{"key": "spot", "operator": "Exists"}, {"key": "gpu", "operator": "Exists"}],
                    "imagePullSecrets": [{"name": "b"}],
                    "nodeSelector": {"zone": "a"},
                    "enableServiceLinks": True,
                },
            },
        )
    )
    spec, engine = pod["spec"], engine_of(pod)
    assert pod["metadata"]["labels"] == {**labels.engine_labels("ride"), "team": "lifts"}
    assert pod["metadata"]["annotations"] == {"note": "x"}
    assert [each["name"] for each in spec["containers"]] == ["engine", "log"]
    assert [each["mountPath"] for each in engine["volumeMounts"]][-1] == "/data"
    assert engine["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert engine["securityContext"]["readOnlyRootFilesystem"]
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["fsGroup"]) == (7, 65532)
    assert [each["key"] for each in spec["tolerations"]] == ["gpu", "spot"]
    assert [each["name"] for each in spec["imagePullSecrets"]] == ["a", "b"]
    assert spec["nodeSelector"] == {"pool": "gpu", "zone": "a"}
    assert spec["enableServiceLinks"] is True


def test_null_removes_a_field_of_an_object(resource: Resource) -> None:
    nulls = {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
    engine = {"name": "engine", "securityContext": {"capabilities": None, "privileged": None}}
    pod = pod_of(resource(podTemplate={"spec": {"securityContext": nulls, "containers": [engine]}}))
    assert pod["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert engine_of(pod)["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"securityContext": {"seccompProfile": {"type": None}}}, "seccompProfile.type: is None: must be a string"),
        ({"hostname": None}, "hostname: is None: must be a string"),
        ({"securityContext": {"sysctls": [{"name": None, "value": "1"}]}}, "name: is None: must be a string"),
    ],
)
def test_null_is_refused_where_a_field_must_be_or_the_api_server_drops_it(
    resource: Resource, spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidManifest, match=message):
        resource(podTemplate={"spec": spec})


def test_an_installation_has_a_security_context_and_pull_secrets_for_all_pods(resource: Resource) -> None:
    """The resource's own precede."""
    installation = Installation(security_context={"runAsNonRoot": True}, pull_secrets=("mirror", "own"))
    fleet_ = resource(imagePullSecrets=[{"name": "own"}], podTemplate={"spec": {"securityContext": {"fsGroup": 9}}})
    spec = build_deployment(fleet_, ChildNames.from_resource(fleet_), 1, installation)["spec"]["template"]["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "fsGroup": 9}
    assert spec["imagePullSecrets"] == [{"name": "own"}, {"name": "mirror"}]
    bare = build_deployment(resource(), ChildNames.from_resource(resource()), 1, Installation(security_context={}))[
        "spec"
    ]["template"]["spec"]
    assert "securityContext" not in bare
    assert "imagePullSecrets" not in bare


def test_several_gpus_share_more_memory_than_a_runtime_gives(resource: Resource) -> None:
    def shared(count: int, **spec: Any) -> list[Any]:
        pod = pod_of(resource(resources={"gpu": {"count": count}}, podTemplate={"spec": spec}))
        names = [each["name"] for each in engine_of(pod)["volumeMounts"] if each["mountPath"] == "/dev/shm"]
        return [each for each in pod["spec"]["volumes"] if each["name"] in (*names, "shared-memory")]

    own = {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    mount = {"name": "dshm", "mountPath": "/dev/shm"}
    assert shared(1) == []
    assert shared(2) == [{"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]
    assert shared(2, hostIPC=True) == []
    assert shared(2, volumes=[own], containers=[{"name": "engine", "volumeMounts": [mount]}]) == [own]
    assert shared(1, volumes=[own], containers=[{"name": "engine", "volumeMounts": [mount]}]) == [own]
    of_a_sidecar = [{"name": "log", "image": "log", "volumeMounts": [mount]}]
    assert [each["name"] for each in shared(2, volumes=[own], containers=of_a_sidecar)] == ["shared-memory"]


def test_names_and_paths_of_what_the_operator_mounts_are_refused_to_others(resource: Resource) -> None:
    full = resource(
        model={"source": "pvc://models"},
        resources={"gpu": {"count": 2, "claimTemplateName": "gpus"}},
        security={"apiKeySecretRef": {"name": "keys"}},
    )
    pod = pod_of(full)
    for volume in pod["spec"]["volumes"]:
        with pytest.raises(InvalidManifest, match="volumes of podTemplate must have other names"):
            resource(podTemplate={"spec": {"volumes": [{"name": volume["name"], "emptyDir": {}}]}})
    for mount in engine_of(pod)["volumeMounts"]:
        if mount["mountPath"] == "/dev/shm":
            continue
        given = {"name": "engine", "volumeMounts": [{"name": "x", "mountPath": mount["mountPath"]}]}
        with pytest.raises(InvalidManifest, match="mountPaths of podTemplate's container engine"):
            resource(podTemplate={"spec": {"containers": [given]}})
    for claim in pod["spec"]["resourceClaims"]:
        with pytest.raises(InvalidManifest, match="resourceClaims of podTemplate must have other names"):
            resource(podTemplate={"spec": {"resourceClaims": [{"name": claim["name"]}]}})


def test_every_field_of_the_engines_container_is_the_operators_or_open(resource: Resource) -> None:
    """A field that the operator begins to set is refused to templates, or merged knowingly."""
    merges = {"name", "securityContext", "volumeMounts"}
    assert engine_of(pod_of(resource())).keys() <= owned.ENGINE.keys() | merges


def test_labels_of_the_operator_win(resource: Resource) -> None:
    """Whatever rules let through."""
    given = resource(podTemplate={"metadata": {"labels": {"a": "b"}}}).spec.pod_template
    assert (
        with_template({"metadata": {"labels": {"a": "ours"}}, "spec": {}}, given)["metadata"]["labels"]["a"] == "ours"
    )
