"""What is read from a pod is the engine's, whatever else a template or a webhook put beside it."""

from typing import Any

from paternoster_operator.observed import Observed


def container(name: str, port: int, seqs: str) -> dict[str, Any]:
    return {
        "name": name,
        "args": ["--max-num-seqs", seqs],
        "ports": [{"name": "http", "containerPort": port}],
        "resources": {"limits": {"memory": f"{port}Mi"}},
    }


def test_ports_and_flags_are_the_engines() -> None:
    document = {
        "metadata": {"name": "ride-1"},
        "spec": {"containers": [container("mesh", 15001, "1"), container("engine", 8000, "64")]},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "containerStatuses": [
                {"name": "mesh", "ready": True, "state": {"running": {}}},
                {"name": "engine", "ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            ],
        },
    }
    (pod,) = Observed.from_cluster(None, [document]).pods
    assert (pod.url, pod.capacity) == ("http://10.0.0.1:8000", 64)
    assert (pod.container, pod.waiting_reason, pod.limits) == ("engine", "CrashLoopBackOff", {"memory": "8000Mi"})


def test_a_pod_without_an_engine_has_no_address() -> None:
    document = {
        "metadata": {"name": "ride-1"},
        "spec": {"containers": [container("mesh", 15001, "1")]},
        "status": {"podIP": "10.0.0.1"},
    }
    (pod,) = Observed.from_cluster(None, [document]).pods
    assert (pod.url, pod.admin_url, pod.capacity) == (None, None, None)


def beside(state: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The engine runs and is not ready yet; a container beside it is as ``state`` says."""
    engine = {"name": "engine", "ready": False, "state": {"running": {"startedAt": "2026-11-21T12:00:00Z"}}}
    return {
        "metadata": {"name": "ride-1"},
        "status": {"containerStatuses": [engine, {"name": "log", "ready": False, "state": state, **fields}]},
    }


def test_the_container_that_fails_is_the_one_that_is_told() -> None:
    """Whichever comes first: an engine that loads its model is not why the pod does not start."""
    looping = beside({"waiting": {"reason": "CrashLoopBackOff"}})
    ended = beside({"running": {}}, lastState={"terminated": {"exitCode": 1}})
    for document in (looping, ended):
        (pod,) = Observed.from_cluster(None, [document]).pods
        assert pod.container == "log"
    for state in ({"waiting": {"reason": "ContainerCreating"}}, {"running": {}}):
        (pod,) = Observed.from_cluster(None, [beside(state)]).pods
        assert pod.container == "engine"


def test_what_ended_is_no_replica() -> None:
    def pod(name: str, phase: str, **metadata: Any) -> dict[str, Any]:
        return {"metadata": {"name": name, **metadata}, "status": {"phase": phase}}

    observed = Observed.from_cluster(
        None,
        [
            pod("a", "Running"),
            pod("b", "Pending"),
            pod("c", "Failed"),
            pod("d", "Succeeded"),
            pod("e", "Running", deletionTimestamp="2026-11-21T12:00:00Z"),
        ],
    )
    assert [pod.name for pod in observed.live] == ["a", "b"]
    assert [pod.name for pod in observed.pending] == ["a", "b"], "neither serves yet"


def test_a_drained_pod_is_no_replica_and_not_on_its_way() -> None:
    def pod(name: str, **annotations: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "annotations": annotations}, "status": {"phase": "Running"}}

    since = {"paternoster.dev/scale-down": "2026-11-21T12:00:00Z"}
    observed = Observed.from_cluster(None, [pod("a"), pod("b", **since)])
    assert [pod.name for pod in observed.live] == [pod.name for pod in observed.pending] == ["a"]
    assert [pod.name for pod in observed.draining] == [pod.name for pod in observed.drained] == ["b"]
    assert [pod.name for pod in observed.with_drained({"a"}).drained] == ["a"]
