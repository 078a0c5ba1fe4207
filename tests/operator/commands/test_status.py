"""``paternoster status``: ten start-ups that fail, a fleet that is slow, and both places that a fleet is read from."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.operator.conftest import manifest_document
from tests.operator.status.failing_pods import NOW, REFUSED, crashing, deployment, ended, unscheduled, waiting
from tests.operator.status.test_status import status_of

from paternoster_contract.fetch_status import FetchStatus
from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.observed import Observed
from paternoster_operator.report.causes.cause import StallReason, explain_stall, find_step
from paternoster_operator.report.causes.next_step import STEPS
from paternoster_operator.report.conditions import Access
from paternoster_operator.report.status import invalid_status
from paternoster_operator.terminal.status_page import describe_fleet, is_ready

FOLDER = Path(__file__).parent
GOLDEN = FOLDER / "status.txt"
DOCS = Path(__file__).parents[3] / "docs"
SLOW: dict[str, Any] = json.loads((FOLDER / "fleet.json").read_text())
ROUTED = Access(("ride",), gateways=1, knowing=1)
Document = dict[str, Any]


def show_failure(*pods: Document, made: Document | None = None, access: Access = ROUTED, **spec: Any) -> list[str]:
    """The page of a fleet of two replicas, as its operator would write the status."""
    document = manifest_document(replicas=2, **spec)
    resource = parse_resource(document)
    observed = Observed.from_cluster(made, pods)
    document["status"] = status_of(resource, observed, access=access, now=NOW)
    assert not is_ready(document)
    return describe_fleet(document, resource.spec, pods, NOW)


def show_invalid() -> list[str]:
    document = manifest_document(engine={"maxNumSeqs": 0})
    with pytest.raises(InvalidManifest) as caught:
        parse_resource(document)
    document["status"] = invalid_status(3, {}, caught.value.errors, NOW)
    assert not is_ready(document)
    return describe_fleet(document, None, (), NOW)


def name_pod(document: Document, container: str = "engine") -> Document:
    for status in document["status"].get("containerStatuses", ()):
        status.setdefault("name", container)
    return document


def fetching(reason: str, message: str) -> Document:
    """A pod whose model could not be fetched."""
    failed = FetchStatus(state="failed", reason=reason, message=message).model_dump_json()
    state = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended(3, failed), "name": "model"}
    return {"metadata": {"name": "ride-1"}, "status": {"phase": "Pending", "initContainerStatuses": [state]}}


def refuse_creation(message: str) -> Document:
    return deployment({**REFUSED, "message": message})


QUOTA = 'pods "ride-1" is forbidden: exceeded quota: small, requested: cpu=4, used: cpu=8, limited: cpu=8'
POLICY = "ride-1 is forbidden: ValidatingAdmissionPolicy 'signed' with binding 'all' denied request: image not signed"
OTHERS_NAME = "model.servedName ride is that of LLMDeployment other/ride"
MISSING_KEY = "couldn't find key token in Secret lifts/riders"
FAILURES: Mapping[str, Callable[[], list[str]]] = {
    "image": lambda: show_failure(
        name_pod(waiting("ImagePullBackOff", 'Back-off pulling image "r.example/e:1": manifest unknown'))
    ),
    "quota": lambda: show_failure(made=refuse_creation(QUOTA)),
    "GPU": lambda: show_failure(
        unscheduled(
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: 0/2 "
            "nodes are available: 2 Preemption is not helpful for scheduling.",
            **{"nvidia.com/gpu": "1"},
        ),
        resources={"gpu": {"count": 1}},
    ),
    "source": lambda: show_failure(
        fetching("SourceNotFound", "hf://rider/lift: there is no such repository"), model={"source": "hf://rider/lift"}
    ),
    "claim": lambda: show_failure(
        unscheduled('0/1 nodes are available: persistentvolumeclaim "models" not found.'),
        model={"source": "pvc://models/lift.gguf"},
    ),
    "key": lambda: show_failure(
        name_pod(waiting("CreateContainerConfigError", MISSING_KEY)),
        security={"apiKeySecretRef": {"name": "riders", "key": "token"}},
    ),
    "schema": show_invalid,
    "name taken": lambda: show_failure(access=Access((), StallReason("ServedNameTaken", OTHERS_NAME), gateways=1)),
    "policy": lambda: show_failure(made=refuse_creation(POLICY)),
    "crash": lambda: show_failure(crashing(ended(1, "RuntimeError: weights are of another shape"))),
}
SHOWN: Mapping[str, Callable[[], list[str]]] = {
    **FAILURES,
    "slow": lambda: describe_fleet(SLOW, None, "not read: HTTP 403: Forbidden", NOW),
}


def test_the_page_names_cause_and_next_step_of_each() -> None:
    pages = [line for name, show in SHOWN.items() for line in (f"### {name}", "", *show(), "")]
    assert "\n".join(pages) == GOLDEN.read_text()


@pytest.mark.parametrize("name", FAILURES)
def test_a_step_is_more_than_waiting(name: str) -> None:
    page = FAILURES[name]()
    steps = [line for line in page if line.startswith("next  ")]
    assert steps
    assert "wait" not in steps[0]
    assert page.index(steps[0]) < 5, "at the top of the page"


def test_every_reason_of_the_docs_has_a_step() -> None:
    """``Stalled`` in kubernetes.md, and what a fetch may end with in models.md."""
    tables = {
        "kubernetes.md": ("## Conditions", "Each is also a Warning event"),
        "models.md": ("### Why not", "\n\n##"),
    }
    for page, (begin, end) in tables.items():
        table = (DOCS / page).read_text().partition(begin)[2].partition(end)[0]
        rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `") and "Stalled" not in line]
        reasons = {word for row in rows for word in row.split("`")[1::2]}
        assert len(reasons) > 8, page
        assert reasons - STEPS.keys() == set(), page


@pytest.mark.parametrize("message", [QUOTA, POLICY, MISSING_KEY, 'serviceaccount "s" not found', "exec format error"])
def test_the_step_is_found_again_in_a_message_that_has_it(message: str) -> None:
    for reason in ("PodCreationFailed", "ContainerCannotRun"):
        step = find_step(reason, message)
        assert find_step(reason, explain_stall(reason, message).message) == step
        assert explain_stall(reason, message).message == (f"{message}; {step}" if step else message)


def condition(type_: str, status: str) -> Document:
    return {"type": type_, "status": status, "reason": "R", "message": ""}


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, False),
        ({"conditions": [condition("Ready", "False")]}, False),
        ({"conditions": [condition("Ready", "Unknown")]}, False),
        ({"conditions": [condition("Ready", "True")]}, True),
        ({"conditions": [condition("Ready", "True")], "observedGeneration": 2}, False),
        ({"conditions": [condition("Ready", "True")], "observedGeneration": 3}, True),
    ],
)
def test_an_edit_that_nobody_has_seen_is_not_ready(status: Document, ready: bool) -> None:
    document = {**manifest_document(), "status": status}
    assert is_ready(document) is ready
    assert describe_fleet(document, None, (), NOW)[0].startswith(
        "lifts/ride is ready" if ready else "lifts/ride is not ready"
    )


LABELS = {"app.kubernetes.io/instance": "ride"}


def label_pods(documents: Sequence[Document], **labels: str) -> list[Document]:
    return [
        {**each, "metadata": {**each["metadata"], "namespace": "lifts", "labels": {**LABELS, **labels}}}
        for each in documents
    ]


@pytest.fixture
async def server(serve_objects: Any) -> AsyncIterator[str]:
    """An operator, and an API server, with a fleet that serves and one whose image is missing."""
    failing = manifest_document()
    pods = label_pods([name_pod(waiting("ImagePullBackOff", "manifest unknown"))])
    resource = parse_resource(failing)
    failing["status"] = status_of(resource, Observed.from_cluster(None, pods), now=NOW)
    failing["status"]["selector"] = "app.kubernetes.io/instance=ride"
    serving = {**SLOW, "metadata": {**SLOW["metadata"], "name": "slow"}}
    async with serve_objects(failing, serving, pods=pods) as url:
        yield url


async def test_from_an_operator(server: str, call_paternoster: Any) -> None:
    done = await asyncio.to_thread(call_paternoster, "status", "ride", "--server", server)
    assert (done.returncode, done.stderr) == (3, "")
    assert "\nride-1  stuck  ImagePullFailed: ImagePullBackOff: manifest unknown\n" in done.stdout
    done = await asyncio.to_thread(call_paternoster, "status", "slow", "--server", server)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "lifts/slow is ready")
    done = await asyncio.to_thread(call_paternoster, "status", "down", "--server", server)
    assert done.returncode == 1
    assert done.stderr == f"paternoster status: there is no LLMDeployment down at {server}\n"


async def test_from_a_cluster(server: str, write_kubeconfig: Callable[[str], None], paternoster: Any) -> None:
    write_kubeconfig(server)
    done = await asyncio.to_thread(paternoster, "status", "ride")
    assert (done.returncode, done.stderr) == (3, "")
    assert "\nride-1  stuck  ImagePullFailed: ImagePullBackOff: manifest unknown\n" in done.stdout


async def test_without_the_right_to_read_pods_the_rest_is_shown(
    serve_objects: Any, write_kubeconfig: Callable[[str], None], paternoster: Any
) -> None:
    fleet = {**SLOW, "status": {**SLOW["status"], "selector": "app=ride"}}
    async with serve_objects(fleet, pods=None) as url:
        write_kubeconfig(url)
        done = await asyncio.to_thread(paternoster, "status", "ride")
    assert done.returncode == 0
    assert f"\nPods: not read: {url}: HTTP 403: Forbidden\n" in done.stdout
