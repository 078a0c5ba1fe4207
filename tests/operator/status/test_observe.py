"""What is read from a pod is the engine's, whatever else a template or a webhook put beside it."""

from typing import Any

from paternoster_operator.observe import Observed


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
