"""The children of two resources, as golden files, and what must hold for any."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from paternoster_contract.labels import engine_labels
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.desired.children import RootKeys, build_children
from paternoster_operator.desired.engine_args import Installation, engine_args
from paternoster_operator.desired.network_policy import Peers

Resource = Callable[..., LLMDeployment]

ROOTS = RootKeys(["admin-root"])
PEERS = Peers("system", {"app": "operator"}, {"app": "gateway"}, {"monitoring": "yes"})


def test_the_plainest(resource: Resource, snapshot: SnapshotAssertion) -> None:
    assert yaml.safe_dump_all(build_children(resource(), 1, ROOTS), sort_keys=False) == snapshot


def test_with_everything_set(resource: Resource, snapshot: SnapshotAssertion) -> None:
    full = resource(
        model={"source": "file:///models/llama", "servedName": "llama/8b"},
        engine={
            "image": "engine@sha256:abc", "imagePullPolicy": "Always", "maxNumSeqs": 128, "maxModelLen": 8192,
            "maxBatchedTokens": 4096, "kvCacheMemory": "20Gi", "blockSize": 64, "dtype": "bfloat16",
            "maxQueuedRequests": 50, "prefixCache": False,
        },
        resources={"gpu": {"count": 1}, "requests": {"memory": "24Gi"}, "limits": {"cpu": "3500m"}},
        topologySpreadConstraints=[
            {"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        priorityClassName="serving",
        runtimeClassName="nvidia",
        serviceAccountName="engines",
        imagePullSecrets=[{"name": "registry"}],
        security={"apiKeySecretRef": {"name": "keys", "key": "api"}},
        nodeSelector={"pool": "gpu"},
        tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        autoscaling={"minReplicas": 2, "maxReplicas": 8},
        rollout={"maxSurge": 2, "maxUnavailable": 1, "minReadySeconds": 5},
        drain={"timeoutSeconds": 60},
    )  # fmt: skip
    assert yaml.safe_dump_all(build_children(full, 3, RootKeys(["b"], ["a"]), peers=PEERS), sort_keys=False) == snapshot


def test_threads_follow_the_cpu_limit(resource: Resource) -> None:
    assert engine_args(resource(resources={"limits": {"cpu": "1500m"}})).threads == 2
    assert engine_args(resource()).threads is None


def test_an_engine_has_a_rank_for_each_gpu(resource: Resource) -> None:
    def ranks(**resources: object) -> int:
        return engine_args(resource(resources=resources)).tensor_parallel_size

    assert ranks() == 1
    assert ranks(gpu={"count": 4}) == 4
    assert ranks(gpu={"count": 2, "claimTemplateName": "two-gpus"}) == 2
    assert ranks(limits={"cpu": "8", "nvidia.com/gpu": "2"}) == 2
    assert ranks(limits={"amd.com/gpu": "8"}, gpu={"resourceName": "amd.com/gpu"}) == 8
    assert ranks(limits={"amd.com/gpu": "8"}) == 1


def test_an_engine_without_gpus_chooses_its_device_and_sizes(resource: Resource) -> None:
    """What is unset stays unset: the engine finds its device itself."""
    args = engine_args(resource())
    assert (args.device, args.kv_cache_memory, args.max_batched_tokens) == ("auto", None, None)


@pytest.mark.parametrize(
    "resources",
    [
        {"gpu": {"count": 1}},
        {"gpu": {"count": 2, "claimTemplateName": "two-gpus"}},
        {"limits": {"nvidia.com/gpu": "1"}},
    ],
)
def test_an_engine_with_gpus_runs_on_them_and_takes_what_is_free(resource: Resource, resources: Any) -> None:
    args = engine_args(resource(resources=resources))
    assert (args.device, args.kv_cache_memory, args.max_batched_tokens) == ("cuda", None, None)
    flags = args.to_flags()
    assert flags[flags.index("--device") + 1] == "cuda"
    assert not {"--kv-cache-memory", "--max-batched-tokens"} & set(flags)


@pytest.mark.parametrize(("given", "memory"), [("0", 0), (0, 0), ("512Mi", 512 * 2**20), ("20Gi", 20 * 2**30)])
def test_memory_that_is_given_is_passed_on(resource: Resource, given: str | int, memory: int) -> None:
    sized = resource(engine={"kvCacheMemory": given}, resources={"gpu": {"count": 1}})
    assert engine_args(sized).kv_cache_memory == memory


def test_batch_invariance_is_a_setting_of_the_engine(resource: Resource) -> None:
    assert engine_args(resource(engine={"batchInvariant": True})).batch_invariant
    assert not engine_args(resource()).batch_invariant


def test_every_child_is_owned_and_selected(resource: Resource) -> None:
    for child in build_children(resource(), 2, RootKeys(["b"], ["a"]), peers=PEERS):
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("uid-1", True, True)
        assert child["metadata"]["namespace"] == "lifts"
        assert child["metadata"]["labels"] == engine_labels("ride")


@settings(deadline=None)
@given(st.integers(1, 64), st.integers(1, 64))
def test_steering_never_changes_the_pod_template(initial: int, replicas: int) -> None:
    """A changed template restarts every pod: neither the cap nor replicas may be in it."""
    base = {"apiVersion": "paternoster.dev/v1alpha1", "kind": "LLMDeployment", "metadata": {"name": "a"}}
    spec = {"model": {"source": "package://m"}}
    plain = build_children(parse_resource({**base, "spec": spec}), 1, ROOTS)[-1]
    steered = build_children(
        parse_resource({**base, "spec": {**spec, "concurrency": {"initial": initial}}}), replicas, ROOTS
    )[-1]
    assert steered["spec"]["template"] == plain["spec"]["template"]
    assert steered["spec"]["replicas"] == replicas


def test_gpus_come_by_claim(resource: Resource) -> None:
    claimed = resource(resources={"gpu": {"count": 2, "claimTemplateName": "two-gpus"}})
    pod = build_children(claimed, 1, ROOTS)[-1]["spec"]["template"]["spec"]
    assert pod["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "two-gpus"}]
    assert pod["containers"][0]["resources"]["claims"] == [{"name": "gpu"}]


def test_the_operator_gives_the_image_that_the_resource_leaves_out(resource: Resource) -> None:
    def image(**engine: str) -> str:
        deployment = build_children(resource(engine=engine), 1, ROOTS, Installation("mirror/engine:1"))[-1]
        return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])

    assert image() == "mirror/engine:1"
    assert image(image="own:2") == "own:2"
