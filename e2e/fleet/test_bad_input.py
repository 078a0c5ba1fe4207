"""Mistakes in a manifest or around it: each is named, with a reason of its own, and gone once it is mended.

A user sees an LLMDeployment and nothing else. Kubelet, scheduler, quota controller and engine have the reason why its
pods do not serve, and the status repeats their messages.
"""

from typing import Any, NamedTuple

import pytest

from paternoster_e2e.cluster.node import PAUSE_IMAGE
from paternoster_e2e.kubectl import CommandError, Document, condition, until

pytestmark = pytest.mark.timeout(600)

KEY = "a-key-of-the-test"
REFUSING = "127.0.0.1:1/x:1"
"""An image whose registry refuses at once."""


class Mistake(NamedTuple):
    """A spec that cannot work, the reason that is given for it, and what its message must have."""

    spec: Document
    reason: str
    words: str


MISTAKES = {
    "image": Mistake({"engine": {"image": "nowhere.invalid/x:1"}}, "ImagePullFailed", "nowhere.invalid/x:1"),
    "image-name": Mistake({"engine": {"image": "UPPER::bad"}}, "ImagePullFailed", "UPPER::bad"),
    "package": Mistake({"model": {"source": "package://no_such_model"}}, "ModelSourceFailed", "no_such_model"),
    "file": Mistake({"model": {"source": "file:///models/none.gguf"}}, "ModelSourceFailed", "/models/none.gguf"),
    "gpu": Mistake(
        {"resources": {"gpu": {"count": 1}}}, "InsufficientGPUs", "not enough nvidia.com/gpu for its 1 (1 of 1 nodes)"
    ),
    "cpu": Mistake(
        {"resources": {"requests": {"cpu": "64"}, "limits": {"cpu": "64"}}},
        "Unschedulable",
        "not enough cpu for its 64 (1 of 1 nodes)",
    ),
    "no-command": Mistake(
        {"engine": {"image": PAUSE_IMAGE}}, "ContainerCannotRun", '"paternoster": executable file not found'
    ),
    "memory-limit": Mistake(
        {"resources": {"limits": {"cpu": "1", "memory": "160Mi"}}},
        "OOMKilled",
        "needs more memory than its limit of 160Mi; its KV cache takes up to 64Mi",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_spec_that_cannot_work(fleet: Any, mistake: Mistake) -> None:
    fleet.apply(**mistake.spec)
    # The kubelet may miss the log of an engine that ended fast; it reads the next one's.
    # And it takes a while until memory has run out twice.
    until(lambda: mistake.words in fleet.until_stalled(mistake.reason, seconds=240), f"it says {mistake.words}", 240)
    fleet.apply()
    fleet.until_ready()


@pytest.mark.parametrize("resources", [{}, {"gpu": {"count": 1}}], ids=["cpu", "gpu"])
def test_a_cordoned_node(fleet: Any, resources: Document) -> None:
    """A GPU that it may have is not what is missing."""
    [node] = fleet.kubectl.list("nodes")
    fleet.kubectl("cordon", node["metadata"]["name"])
    try:
        fleet.apply(resources=resources)
        message = fleet.until_stalled("Unschedulable")
        assert message.endswith("no node takes it: cordoned (1 of 1 nodes)")
    finally:
        fleet.kubectl("uncordon", node["metadata"]["name"])
    fleet.apply()
    fleet.until_ready()


def test_an_image_that_is_tried_again_is_still_told(fleet: Any) -> None:
    """Between two attempts the kubelet gives another reason; the cause is the same, and is reported without a gap."""
    fleet.apply(engine={"image": REFUSING})
    fleet.until_stalled("ImagePullFailed")
    since = condition(fleet.get(), "Stalled")["lastTransitionTime"]
    for reason in ("ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"):
        until(lambda reason=reason: waiting_reason(fleet) == reason, f"the pod waits because of {reason}", 120)
    fleet.until_stalled("ImagePullFailed")
    assert condition(fleet.get(), "Stalled")["lastTransitionTime"] == since


def waiting_reason(fleet: Any) -> str:
    statuses = [status for pod in fleet.pods() for status in pod["status"].get("containerStatuses", [])]
    return next((status["state"]["waiting"]["reason"] for status in statuses if "waiting" in status["state"]), "")


@pytest.mark.parametrize("hard", [{"pods": "0"}, {"requests.cpu": "50m"}], ids=["pods", "cpu"])
def test_an_exceeded_quota(fleet: Any, hard: dict[str, str]) -> None:
    fleet.kubectl.apply(quota(fleet.namespace, hard))
    fleet.apply()
    assert f"exceeded quota: {fleet.namespace}" in fleet.until_stalled("QuotaExceeded")
    fleet("delete", "resourcequota", fleet.namespace)
    # The ReplicaSet controller tries again with backoff.
    fleet.until_ready(seconds=240)


def quota(namespace: str, hard: dict[str, str]) -> Document:
    metadata = {"name": namespace, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}


def test_a_missing_secret(fleet: Any) -> None:
    """The engines wait for the key, and then answer no client without it."""
    fleet.apply(security={"apiKeySecretRef": {"name": "clients"}})
    assert "names Secret clients" in fleet.until_stalled("ConfigurationMissing")
    fleet("create", "secret", "generic", "clients", f"--from-literal=key={KEY}")
    fleet.until_ready()
    assert fleet.chat().status_code == 401
    assert fleet.chat("another-key").status_code == 401
    assert fleet.chat(KEY).status_code == 200


def test_what_the_api_server_refuses(fleet: Any) -> None:
    """It names what is wrong, and nothing is stored that somebody would have to clean up."""
    refusals: dict[str, Document] = {
        "spec.model.source: Invalid value": {"model": {"source": "oci://registry/model"}},
        "autoscaling.minReplicas must be": {"autoscaling": {"minReplicas": 3, "maxReplicas": 2}},
        "replicas must be set when": {"autoscaling": {"mode": "External", "maxReplicas": 3}},
        "budget.maxGPUs must allow": {"resources": {"gpu": {"count": 2}}, "budget": {"maxGPUs": 1}},
    }
    for words, spec in refusals.items():
        with pytest.raises(CommandError, match=words):
            fleet.apply(**spec)
    fleet.name = "lift-" * 10 + "x"
    with pytest.raises(CommandError, match=r"metadata\.name must be at most 50 characters"):
        fleet.apply()
    assert fleet.kubectl.list("llmd", fleet.namespace) == []


class TestServing:
    """A mistake in an edit costs nothing: the engines that serve go on until better ones do."""

    def test_an_edit_to_a_bad_image(self, fleet: Any) -> None:
        fleet.apply()
        fleet.until_ready()
        [before] = fleet.pods()
        fleet.apply(engine={"image": REFUSING})
        assert REFUSING in fleet.until_stalled("ImagePullFailed", ready="True")
        assert fleet.chat().status_code == 200
        assert names(fleet) > {before["metadata"]["name"]}
        fleet.apply()
        fleet.until_ready()
        assert names(fleet) == {before["metadata"]["name"]}
        assert fleet.chat().status_code == 200

    def test_an_edit_beyond_the_quota(self, fleet: Any) -> None:
        """The quota has room for the pod that serves, and none for the one that is to replace it: but in its place."""
        fleet.kubectl.apply(quota(fleet.namespace, {"pods": "1"}))
        surge = {"maxSurge": 1}
        fleet.apply(rollout=surge)
        fleet.until_ready()
        [before] = fleet.pods()
        fleet.apply(rollout=surge, engine={"maxQueuedRequests": 8})
        assert f"exceeded quota: {fleet.namespace}" in fleet.until_stalled("QuotaExceeded", ready="True")
        assert fleet.chat().status_code == 200
        assert names(fleet) == {before["metadata"]["name"]}
        fleet.apply(rollout=surge)
        fleet.until_ready()
        assert names(fleet) == {before["metadata"]["name"]}
        fleet.apply(drain={"timeoutSeconds": 5}, rollout={"maxUnavailable": 1})
        until(lambda: before["metadata"]["name"] not in names(fleet), "the old replica has made room", 120)
        fleet.until_ready()


def names(fleet: Any) -> set[str]:
    return {pod["metadata"]["name"] for pod in fleet.pods()}
