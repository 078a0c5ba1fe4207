"""The pods of a fleet of vLLM: its image, the plugin, keys as folders, one port."""

from collections.abc import Callable
from typing import Any

import pytest

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.children import RootKeys, build_children
from paternoster_operator.desired.engine_args import Installation
from paternoster_operator.desired.network_policy import Peers, build_network_policy
from paternoster_operator.desired.ownership import ChildNames
from paternoster_operator.engines.adapter import RuntimeType
from paternoster_operator.pods.reading import read_pod
from paternoster_operator.routes.row import build_route

Resource = Callable[..., LLMDeployment]
MODEL = {"source": "pvc://models/smol"}
VLLM = {"type": "VLLM", "image": "vllm:1"}
SGLANG = {"type": "SGLang", "image": "sglang:1"}


def pod_spec(resource: LLMDeployment, roots: RootKeys) -> dict[str, Any]:
    deployment = build_children(resource, 1, roots, Installation(fetch_image="operator:1"))[-1]
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def test_the_plugin_is_laid_into_the_pod_by_the_operators_image(resource: Resource) -> None:
    spec = pod_spec(resource(model=MODEL, engine={"runtime": VLLM}), RootKeys(["a"], ["g"]))
    (init,) = spec["initContainers"]
    assert (init["image"], init["command"], init["args"]) == (
        "operator:1", ["paternoster", "vllm-plugin"], ["/opt/paternoster/plugin"],
    )  # fmt: skip
    (engine,) = spec["containers"]
    env = {entry["name"]: entry["value"] for entry in engine["env"]}
    assert env["PYTHONPATH"] == "/opt/paternoster/plugin"
    assert {"name": "plugin", "mountPath": "/opt/paternoster/plugin", "readOnly": True} in engine["volumeMounts"]
    assert {"name": "plugin", "emptyDir": {"sizeLimit": "8Mi"}} in spec["volumes"]
    for container in (init, engine):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("runtime", [VLLM, SGLANG, {"type": "OpenAI", "image": "llama:1"}])
def test_its_processes_share_more_memory_than_a_container_has_by_default(
    resource: Resource, runtime: dict[str, Any]
) -> None:
    """vLLM on CPUs does not start with the 64 MiB of container runtimes: API server and worker share 160 MiB."""
    spec = pod_spec(resource(model=MODEL, engine={"runtime": runtime}), RootKeys(["a"], ["g"]))
    assert {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}} in spec["volumes"]
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in spec["containers"][0]["volumeMounts"]


@pytest.mark.parametrize("runtime", [VLLM, {"type": "OpenAI", "image": "llama:1"}, None])
def test_a_pod_names_its_engine(resource: Resource, runtime: dict[str, Any] | None) -> None:
    """After the manifest has another, too; pods of our engine have no annotation."""
    engine = {} if runtime is None else {"runtime": runtime}
    deployment = build_children(resource(model=MODEL, engine=engine), 1, RootKeys(["a"], ["g"]))[-1]
    template = deployment["spec"]["template"]
    pod = {"metadata": {"name": "a", **template["metadata"]}, "spec": template["spec"]}
    wanted = "Paternoster" if runtime is None else runtime["type"]
    assert read_pod(pod).engine_type == wanted
    assert ("annotations" in template["metadata"]) is (runtime is not None)
    pod["metadata"]["annotations"] = {"paternoster.dev/engine-type": "TGI"}
    assert read_pod(pod).engine_type == "Paternoster"


def test_the_container_is_vllms(resource: Resource) -> None:
    runtime = {**VLLM, "args": ["--enforce-eager"], "env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}
    spec = pod_spec(resource(model=MODEL, engine={"runtime": runtime, "maxNumSeqs": 8}), RootKeys(["a"], ["g"]))
    (engine,) = spec["containers"]
    env = {entry["name"]: entry["value"] for entry in engine["env"]}
    assert (engine["image"], engine["command"]) == ("vllm:1", ["vllm", "serve"])
    assert engine["args"][0] == "/mnt/model/smol"
    assert engine["args"][-1] == "--enforce-eager"
    assert env["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert env["PATERNOSTER_VLLM_ADMIN_KEYS"] == "/etc/paternoster/keys/admin"
    assert env["PATERNOSTER_VLLM_API_KEYS"] == "/etc/paternoster/keys/api"
    assert engine["ports"] == [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]
    assert {engine[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")} == {
        "/paternoster/health"
    }


def test_gateways_probe_what_its_pods_probes_read(resource: Resource) -> None:
    fleet = resource(model=MODEL, engine={"runtime": VLLM})
    (engine,) = pod_spec(fleet, RootKeys(["a"], ["g"]))["containers"]
    assert build_route(fleet).health_path == engine["livenessProbe"]["httpGet"]["path"] == "/paternoster/health"
    assert build_route(resource()).health_path == "/health"


def test_without_a_gateway_the_api_is_open_and_the_limits_are_not(resource: Resource) -> None:
    (engine,) = pod_spec(resource(model=MODEL, engine={"runtime": VLLM}), RootKeys(["a"]))["containers"]
    names = {entry["name"] for entry in engine["env"]}
    assert "PATERNOSTER_VLLM_ADMIN_KEYS" in names
    assert "PATERNOSTER_VLLM_API_KEYS" not in names


@pytest.mark.parametrize(
    ("source", "upstream", "found"),
    [
        (MODEL["source"], None, ""),
        (MODEL["source"], "llama", "llama"),
        (MODEL["source"], "$(PATERNOSTER_MODEL)", "/mnt/model/smol"),
        ("file:///models/m%20x", "$(PATERNOSTER_MODEL)@main", "/models/m x@main"),
        ("hf://org/tiny/a.gguf", "$(PATERNOSTER_MODEL)", "/tmp/model/a.gguf"),
    ],
)
def test_a_pod_names_the_model_as_its_engine_has_it(
    resource: Resource, source: str, upstream: str | None, found: str
) -> None:
    """After the manifest has another name, too: gateways put that of each replica into its requests."""
    runtime = {"type": "OpenAI", "image": "server:1"}
    runtime |= {} if upstream is None else {"upstreamModel": upstream}
    fleet = resource(model={"source": source}, engine={"runtime": runtime})
    template = build_children(fleet, 1, RootKeys(["a"], ["g"]))[-1]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    pod = read_pod({"metadata": {"name": "a", **template["metadata"]}, "spec": template["spec"]})
    assert pod.upstream_model == found
    assert "PATERNOSTER_MODEL" not in (upstream or "") or found.startswith(env["PATERNOSTER_MODEL"])


@pytest.mark.parametrize(("runtime", "flag"), [(VLLM, "--block-size"), (SGLANG, "--page-size")])
@pytest.mark.parametrize("size", [None, 16, 32, 128])
def test_a_block_size_is_passed_on_where_it_is_set(
    resource: Resource, runtime: dict[str, Any], flag: str, size: int | None
) -> None:
    """That of our own engine's default, too: vLLM's is 128 on CPUs."""
    engine = {"runtime": runtime} if size is None else {"runtime": runtime, "blockSize": size}
    gpus = {"gpu": {"count": 1}}
    (container,) = pod_spec(resource(model=MODEL, engine=engine, resources=gpus), RootKeys(["a"]))["containers"]
    args = container["args"]
    assert (args[args.index(flag) + 1] if flag in args else None) == (None if size is None else str(size))


def test_a_command_takes_the_place_of_the_program(resource: Resource) -> None:
    runtime = {"type": "VLLM", "command": ["/venv/bin/vllm", "serve"]}
    (engine,) = pod_spec(resource(model=MODEL, engine={"runtime": runtime}), RootKeys(["a"]))["containers"]
    assert engine["command"] == ["/venv/bin/vllm", "serve"]
    assert "image" not in engine, "an API server refuses it by name"


def test_the_operator_reads_the_pod_on_its_one_port(resource: Resource) -> None:
    engine = {"runtime": VLLM, "maxNumSeqs": 8, "maxQueuedRequests": 9000}
    spec = pod_spec(resource(model=MODEL, engine=engine), RootKeys(["a"]))
    pod = read_pod({"metadata": {"name": "a"}, "spec": spec, "status": {"podIP": "10.0.0.1"}})
    assert (pod.url, pod.admin_url, pod.capacity) == ("http://10.0.0.1:8000", "http://10.0.0.1:8000", 8)
    assert pod.queue == 9008, "a longer queue than the default is plausible"


@pytest.mark.parametrize("keys", [{"apiKeys": [{"name": "keys"}]}])
def test_tenants_do_not_share_slots_fairly_on_vllm(resource: Resource, keys: dict[str, Any]) -> None:
    engine = {"runtime": VLLM, "cacheIsolation": "Fleet"}
    (container,) = pod_spec(resource(model=MODEL, engine=engine, security=keys), RootKeys(["a"], ["g"]))["containers"]
    assert "--scheduling-policy" not in container["args"]


PEERS = Peers("system", {"app": "operator"}, {"app": "gateway"}, {"monitoring": "yes"})


def admitted_ports(fleet: LLMDeployment, peers: Peers) -> dict[str, list[str]]:
    """Ports that the policy admits, by peer."""
    return {
        tuple(selector["matchLabels"].values())[-1]: [port["port"] for port in rule["ports"]]
        for rule in build_network_policy(fleet.spec, ChildNames.from_resource(fleet), peers)["spec"]["ingress"]
        for peer in rule["from"]
        for selector in [peer.get("podSelector", peer["namespaceSelector"])]
    }


OPENAI = {"type": "OpenAI", "image": "llama:1", "args": ["--port=$(PATERNOSTER_PORT)", "-m", "$(PATERNOSTER_MODEL)"]}


@pytest.mark.parametrize(
    ("engine", "scraped"),
    [({}, ["admin"]), ({"runtime": VLLM}, ["http"]), ({"runtime": SGLANG}, None), ({"runtime": OPENAI}, None)],
    ids=["ours", "vllm", "sglang", "openai"],
)
def test_scrapers_reach_a_port_only_where_keys_guard_all_but_its_metrics(
    resource: Resource, engine: dict[str, Any], scraped: list[str] | None
) -> None:
    fleet = resource(model=MODEL, engine={"maxNumSeqs": 8, **engine})
    admitted = admitted_ports(fleet, PEERS)
    assert admitted.pop("yes", None) == scraped
    assert admitted == {"gateway": ["http"], "operator": ["http", "admin"]}, "those of both engines of a rollout"


@pytest.mark.parametrize("kind", RuntimeType)
def test_an_engine_whose_port_scrapers_reach_asks_for_the_gateways_key_there(
    resource: Resource, kind: RuntimeType
) -> None:
    """Held against what the pod is given, for every type of engine that there is."""
    runtime = {RuntimeType.OPENAI: OPENAI}.get(kind, {"type": kind.value, "image": "engine:1"})
    runtime = {} if kind is RuntimeType.PATERNOSTER else {"runtime": runtime}
    fleet = resource(model=MODEL, engine={"maxNumSeqs": 8, **runtime})
    (engine,) = pod_spec(fleet, RootKeys(["a"], ["g"]))["containers"]
    has_keys = "--api-keys" in str(engine["args"]) or any("API_KEYS" in entry["name"] for entry in engine["env"])
    ports = admitted_ports(fleet, PEERS).get("yes", [])
    assert has_keys or not ports


def test_a_server_of_the_openai_api_is_the_image_with_variables_and_without_a_plugin(resource: Resource) -> None:
    env = [{"name": "PORT", "value": "$(PATERNOSTER_PORT)"}]
    fleet = resource(model=MODEL, engine={"runtime": {**OPENAI, "env": env}, "maxNumSeqs": 8})
    spec = pod_spec(fleet, RootKeys(["a"], ["g"]))
    (engine,) = spec["containers"]
    assert "initContainers" not in spec
    assert all(volume["name"] != "plugin" for volume in spec["volumes"])
    assert "command" not in engine, "the image's own"
    assert engine["args"] == ["--port=$(PATERNOSTER_PORT)", "-m", "$(PATERNOSTER_MODEL)"]
    names = [entry["name"] for entry in engine["env"]]
    assert "PYTHONPATH" not in names
    assert names.index("PATERNOSTER_PORT") < names.index("PORT"), "a variable is replaced by one above it"
    values = {entry["name"]: entry["value"] for entry in engine["env"]}
    assert (values["PATERNOSTER_MODEL"], values["PATERNOSTER_MAX_NUM_SEQS"]) == ("/mnt/model/smol", "8")
    assert engine["ports"] == [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]
    assert {engine[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")} == {"/health"}


def test_sigterm_waits_for_requests_where_it_would_end_them(resource: Resource) -> None:
    """The pod is out of the routing table meanwhile."""
    seconds = {}
    for runtime in (None, VLLM, SGLANG, OPENAI):
        engine = {} if runtime is None else {"runtime": runtime}
        spec = pod_spec(resource(model=MODEL, engine=engine, drain={"timeoutSeconds": 40}), RootKeys(["a"], ["g"]))
        (container,) = spec["containers"]
        seconds["" if runtime is None else runtime["type"]] = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert spec["terminationGracePeriodSeconds"] == 57
    assert seconds == {"": 2, "VLLM": 2, "SGLang": 2, "OpenAI": 42}


@pytest.mark.parametrize(("ipv6", "host"), [(False, "0.0.0.0"), (True, "::")])
@pytest.mark.parametrize("kind", [RuntimeType.VLLM, RuntimeType.SGLANG])
def test_it_listens_at_addresses_of_the_family_that_pods_have_first(
    resource: Callable[..., LLMDeployment], kind: RuntimeType, ipv6: bool, host: str
) -> None:
    """SGLang takes ``::`` for IPv6 alone; so its Service has one family, too."""
    engine = {"runtime": {"type": kind, "image": "engine:1"}}
    children = build_children(resource(model=MODEL, engine=engine), 1, RootKeys(["a"]), Installation(ipv6=ipv6))
    (container,) = children[-1]["spec"]["template"]["spec"]["containers"]
    args = container["args"]
    assert args[args.index("--host") + 1] == host
    (service,) = (each for each in children if each["kind"] == "Service")
    assert "ipFamilyPolicy" not in service["spec"]


def test_ours_listens_at_addresses_of_both_families(resource: Callable[..., LLMDeployment]) -> None:
    children = build_children(resource(), 1, RootKeys(["a"]), Installation(ipv6=True))
    assert children == build_children(resource(), 1, RootKeys(["a"]))
    (service,) = (each for each in children if each["kind"] == "Service")
    assert service["spec"]["ipFamilyPolicy"] == "PreferDualStack"
