"""``paternoster plan``: what would be created, changed and deleted, on an empty cluster and on one with the fleet."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml
from tests.operator.kubernetes.fake_api_server import PLURALS, FakeApiServer, Fault, serve

from paternoster_contract import labels
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.desired.children import RootKeys, build_children
from paternoster_operator.desired.engine_args import Installation
from paternoster_operator.desired.network_policy import Peers

FOLDER = Path(__file__).parent
EXAMPLES = Path(__file__).parents[3] / "examples"
MANIFEST = FOLDER / "plan.yaml"
IMAGES = ("--", "--engine-image", "engine:1", "--fetch-image", "fetch:1")
SECRET_VALUE = "bm90IGZvciBleWVz"
PLURAL_OF = {kind: plural for plural, kind in PLURALS.items()} | {"Secret": "secrets"}

Run = Callable[..., CompletedProcess[str]]


def check_golden(name: str, text: str) -> None:
    assert text == (FOLDER / name).read_text(), text


def test_an_empty_cluster(call_paternoster: Run) -> None:
    done = call_paternoster("plan", "-f", str(MANIFEST), "--empty", *IMAGES)
    assert (done.returncode, done.stderr) == (0, "")
    check_golden("plan_empty.txt", done.stdout)


@pytest.fixture
async def server(tmp_path: Path, environment: dict[str, str]) -> AsyncIterator[FakeApiServer]:
    server = FakeApiServer()
    async with serve(server, tmp_path) as kubeconfig:
        environment["KUBECONFIG"] = str(kubeconfig)
        yield server


async def put_fleet(server: FakeApiServer) -> None:
    """A fleet of an older manifest, with what API server and another manager have set beside."""
    document = yaml.safe_load(MANIFEST.read_text())
    document["metadata"]["namespace"] = "lifts"
    document["spec"] |= {"replicas": 2, "engine": {"maxNumSeqs": 8}}
    document = await server.put("llmdeployments", document)
    resource = parse_resource({name: document[name] for name in ("apiVersion", "kind", "metadata", "spec")})
    children = build_children(
        resource, 2, RootKeys(["admin-root"]), Installation(engine_image="engine:0", fetch_image="fetch:1"),
        peers=Peers("system", {"app": "operator"}, None, None),
    )  # fmt: skip
    secret, deployment = children[0], json.loads(json.dumps(children[-1]))
    secret["data"] = dict.fromkeys(secret["data"], SECRET_VALUE)
    deployment["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    container = next(each for each in deployment["spec"]["template"]["spec"]["containers"] if each["name"] == "engine")
    container["terminationMessagePath"] = "/dev/termination-log"
    container.setdefault("env", []).extend([{"name": "OF_OPERATOR", "value": "1"}, {"name": "OF_OTHER", "value": "2"}])
    own = {"k:" + json.dumps({"name": "OF_OPERATOR"}): {".": {}, "f:name": {}, "f:value": {}}}
    engine = {"k:" + json.dumps({"name": "engine"}): {"f:env": own}}
    # Its zero is the operator's, and none that an API server writes.
    assert deployment["spec"].pop("minReadySeconds") == 0
    fields = {"f:spec": {"f:minReadySeconds": {}, "f:template": {"f:spec": {"f:containers": engine}}}}
    deployment["metadata"]["managedFields"] = [
        {"manager": labels.MANAGER, "operation": "Apply", "fieldsV1": fields},
    ]
    for child in (*children[:-1], deployment):
        await server.put(PLURAL_OF[child["kind"]], child)


async def test_a_cluster_that_has_the_fleet(server: FakeApiServer, paternoster: Run) -> None:
    await put_fleet(server)
    before = dict(server.objects)
    done = await asyncio.to_thread(paternoster, "plan", "-f", str(MANIFEST), "-n", "lifts", *IMAGES)
    assert (done.returncode, done.stderr) == (0, "")
    assert SECRET_VALUE not in done.stdout
    check_golden("plan_changed.txt", done.stdout)
    assert server.objects == before, "nothing is done"


def test_a_namespaced_installation_names_the_model_by_its_namespace(call_paternoster: Run, tmp_path: Path) -> None:
    document = yaml.safe_load(MANIFEST.read_text())
    del document["spec"]["model"]["servedName"]
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(yaml.safe_dump(document))
    flags = ("--names", "Namespaced", "--namespace", "lifts")
    named = call_paternoster("plan", "-f", str(manifest), "--empty", "--", *flags)
    assert (named.returncode, named.stderr) == (0, "")
    assert " - --served-model-name\n    +         - default/ride\n" in named.stdout


async def test_quantities_are_compared_by_their_values(server: FakeApiServer, paternoster: Run, tmp_path: Path) -> None:
    """The API server writes each in one way."""
    document = yaml.safe_load(MANIFEST.read_text())
    document["metadata"]["namespace"] = "lifts"
    document["spec"]["resources"] = {"limits": {"cpu": "0.5", "memory": "1024Mi"}, "requests": {"cpu": "500m"}}
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(yaml.safe_dump(document))
    written = await server.put("llmdeployments", document)
    resource = parse_resource({name: written[name] for name in ("apiVersion", "kind", "metadata", "spec")})
    installation = Installation(engine_image="engine:1", fetch_image="fetch:1")
    for child in build_children(resource, 3, RootKeys(["admin-root"]), installation):
        text = json.dumps(child).replace('"0.5"', '"500m"').replace('"1024Mi"', '"1Gi"')
        await server.put(PLURAL_OF[child["kind"]], json.loads(text))
    done = await asyncio.to_thread(paternoster, "plan", "-f", str(manifest), *IMAGES)
    assert (done.stdout, done.stderr) == ("LLMDeployment lifts/ride: nothing would be changed\n", "")


async def test_objects_of_others_are_named(server: FakeApiServer, paternoster: Run) -> None:
    metadata = {"name": "ride", "namespace": "lifts", "labels": {"app": "theirs"}}
    await server.put("services", {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {}})
    done = await asyncio.to_thread(paternoster, "plan", "-f", str(MANIFEST), "-n", "lifts", *IMAGES)
    found = "Service lifts/ride, controlled by nothing, is there already: delete or rename it"
    assert f"  refuse Service lifts/ride: {found}, or rename LLMDeployment ride\n" in done.stdout
    assert "  create Deployment lifts/ride\n" in done.stdout


async def test_an_api_server_that_refuses_is_named(server: FakeApiServer, paternoster: Run) -> None:
    server.fail(Fault(403, "llmdeployments"))
    done = await asyncio.to_thread(paternoster, "plan", "-f", str(MANIFEST), "-n", "lifts")
    path = "/apis/paternoster.dev/v1alpha1/namespaces/lifts/llmdeployments/ride"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"paternoster plan: GET {path}: HTTP 403: as told; --empty asks no cluster\n"


def test_what_is_not_changed_has_its_reason(call_paternoster: Run, tmp_path: Path) -> None:
    document = yaml.safe_load(MANIFEST.read_text())
    document["spec"]["paused"] = True
    paused = tmp_path / "fleet.yaml"
    paused.write_text(yaml.safe_dump(document))
    for file, line in (
        (paused, "default/ride: nothing would be changed: spec.paused is true"),
        (
            EXAMPLES / "observe-vllm.yaml",
            "default/chat-advice: nothing would be changed: spec.targetRef is set: Deployment chat is observed only",
        ),
    ):
        done = call_paternoster("plan", "-f", str(file), "--empty")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"LLMDeployment {line}\n"


@pytest.mark.parametrize(
    ("text", "words", "error"),
    [
        (None, (), "{file}: No such file or directory\n"),
        ("- 1", (), "{file}: the document is [1]: must be a mapping\n"),
        ("kind: Secret", (), "{file}: has no LLMDeployment: must have at least one\n"),
        (
            "{apiVersion: paternoster.dev/v1alpha1, kind: LLMDeployment, metadata: {name: a}, spec: {model: {source: "
            "'file:///m'}, engine: {maxNumSeqs: 0}}}",
            (),
            "{file}: spec.engine.maxNumSeqs: is 0: must be at least 1\n",
        ),
        (
            "{apiVersion: paternoster.dev/v1alpha1, kind: LLMDeployment, metadata: {name: a, namespace: here}, spec: "
            "{model: {source: 'file:///m'}}}",
            ("-n", "there"),
            "{file}: metadata.namespace: is 'here': must be 'there', that of --namespace, or unset\n",
        ),
        (
            MANIFEST.read_text(),
            ("--", "--network-policies", "system"),
            "paternoster plan: --operator-labels is unset: it must say which pods are the operator's, for "
            "--network-policies\n",
        ),
    ],
)
def test_a_bad_input_is_named(
    text: str | None, words: tuple[str, ...], error: str, call_paternoster: Run, tmp_path: Path
) -> None:
    file = tmp_path / "fleet.yaml"
    if text is not None:
        file.write_text(text)
    done = call_paternoster("plan", "-f", str(file), "--empty", *words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", error.format(file=file))
