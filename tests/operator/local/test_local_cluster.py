"""Objects in memory, pods as processes: what a Deployment's controller and a kubelet would do."""

import asyncio
import errno
import json
import os
import re
import signal
import socket
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from paternoster_contract.access import keys
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.cluster.port import ForeignObject, Key
from paternoster_operator.desired.children import RootKeys, build_children
from paternoster_operator.pods.reading import read_pod

KEY = Key("lifts", "ride")


async def test_a_resource_removed_and_put_again_while_it_drains_keeps_its_new_pods(fleet: Any) -> None:
    await fleet.apply(1, env={"DRAIN": "1"})
    (old,) = await fleet.until_ready(1)
    removing = asyncio.create_task(fleet.cluster.remove(KEY))
    await fleet.until(lambda: fleet.pod(old.name).deleting)
    await fleet.apply(1)
    await removing
    (new,) = await fleet.until_ready(1)
    assert new.name != old.name


async def test_children_of_a_resource_that_is_gone_are_not_started(fleet: Any, document: Any) -> None:
    await fleet.apply(1)
    children = dict(fleet.cluster.get_child(KEY, "Deployment") or {})
    await fleet.cluster.remove(KEY)
    await fleet.cluster.apply(children)
    assert fleet.cluster.get_child(KEY, "Deployment") is None
    assert fleet.pods == []


async def test_close_waits_for_pods_that_drain_already(fleet: Any) -> None:
    await fleet.apply(1, env={"DRAIN": "1"})
    (pod,) = await fleet.until_ready(1)
    removing = asyncio.create_task(fleet.cluster.remove(KEY))
    await fleet.until(lambda: "draining" in fleet.log(pod.name))
    await fleet.cluster.close()
    assert "drained" in fleet.log(pod.name)
    await removing


async def test_killing_a_pod_takes_its_own_children_along(fleet: Any) -> None:
    await fleet.apply(1, env={"FORK": "1"})
    (pod,) = await fleet.until_ready(1)
    grandchild = int(fleet.log(pod.name).split("child ")[1].split()[0])
    os.kill(fleet.pid(pod.name), signal.SIGKILL)
    await fleet.until(lambda: not fleet.alive(grandchild), 5)


async def test_a_crashing_engine_says_why_in_its_pod(fleet: Any) -> None:
    await fleet.apply(1, env={"CRASH": "no such model: lift.gguf"})
    await fleet.until(lambda: fleet.pods[0].waiting.startswith("CrashLoopBackOff") and fleet.pods[0])
    assert "no such model: lift.gguf" in fleet.pods[0].waiting


async def test_the_command_runs_on_a_free_port_of_this_machine(fleet: Any) -> None:
    await fleet.apply(2, env={"PATERNOSTER_TEST": "here"}, engine={"maxNumSeqs": 8})
    first, second = await fleet.until_ready(2)
    assert first.port != second.port
    assert 8000 not in (first.port, second.port)
    log = fleet.log(first.name)
    assert '"--max-num-seqs", "8"' in log
    assert '"PATERNOSTER_TEST": "here"' in log
    assert "0.0.0.0" not in log


async def test_an_engine_that_crashed_has_its_ports_again_and_nobody_else_had_them(fleet: Any) -> None:
    await fleet.apply(1)
    (pod,) = await fleet.until_ready(1)
    os.kill(fleet.pid(pod.name), signal.SIGKILL)

    def refused() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", pod.port)) == errno.ECONNREFUSED

    await fleet.until(refused)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", pod.port))
    await fleet.until(lambda: fleet.pods[0].restarts == 1 and fleet.ready)
    assert fleet.pods[0].port == pod.port


async def test_a_model_is_fetched_into_the_cache_of_this_machine(fleet: Any) -> None:
    """The folder of a pod's volume is not here."""
    await fleet.apply(1, model={"source": "hf://org/name"}, env={"PATERNOSTER_TEST": "here"})
    (pod,) = await fleet.until_ready(1)
    log = fleet.log(pod.name)
    assert '"--model", "hf://org/name"' in log
    assert '"PATERNOSTER_TEST": "here"' in log
    assert "/mnt/model" not in log
    assert "HF_HUB_OFFLINE" not in log


def mounted(pod: str) -> Path:
    return next(Path(tempfile.gettempdir()).glob(f"paternoster-secrets-*/{pod}"))


async def test_secrets_are_mounted_for_this_user_alone_and_follow_their_changes(fleet: Any) -> None:
    await fleet.apply(1)
    (pod,) = await fleet.until_ready(1)
    flags = json.loads(re.search(r"^flags (.*)$", fleet.log(pod.name), re.MULTILINE)[1])
    assert "--api-keys" not in flags, "nobody needs a key for its API"
    admin = mounted(pod.name) / "admin-keys"
    file = admin / "operator"
    first = file.read_text()
    assert first == keys.derive_key("admin-root", keys.OPERATOR_TO_ENGINE, fleet.cluster.get(KEY)["metadata"]["uid"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(admin.parents[1].stat().st_mode) == 0o700
    await fleet.apply(1, roots=RootKeys(["new", "admin-root"]))
    assert file.read_text().splitlines()[1] == first
    assert fleet.pods == [pod], "no restart"
    await fleet.cluster.remove(KEY)
    assert not file.exists()


async def test_an_object_of_another_fleet_is_left_alone(fleet: Any, document: Any) -> None:
    """With dots for dashes the names of their children are the same."""
    await fleet.apply(1)
    other = parse_resource(document() | {"metadata": {"name": "ri.de", "namespace": "lifts"}})
    fleet.cluster.put(parse_resource(document() | {"metadata": {"name": "ri-de", "namespace": "lifts"}}))
    fleet.cluster.put(other)
    held, wanted = (
        build_children(parse_resource(dict(fleet.cluster.get(Key("lifts", name)))), 1, RootKeys(["r"]))[1]
        for name in ("ri-de", "ri.de")
    )
    await fleet.cluster.apply(held)
    with pytest.raises(ForeignObject, match=r"controlled by LLMDeployment ri-de"):
        await fleet.cluster.apply(wanted)
    assert fleet.cluster.get_child(Key("lifts", "ri.de"), "Service") is None


async def test_the_status_counts_and_changes_are_told(fleet: Any) -> None:
    await fleet.apply(2, env={"SLOW_START": "0.5"})
    await fleet.until(lambda: all(pod.phase == "Running" for pod in fleet.pods))
    assert fleet.status["replicas"] == 2
    assert fleet.status["readyReplicas"] == 0
    assert {c["type"]: c["status"] for c in fleet.status["conditions"]} == {"Available": "False", "Progressing": "True"}
    fleet.changes.clear()
    await fleet.until_ready(2)
    assert KEY in fleet.changes
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "observedGeneration")
    assert [fleet.status[count] for count in counts] == [2, 2, 2, 2, 1]
    assert {c["type"]: c["status"] for c in fleet.status["conditions"]} == {"Available": "True", "Progressing": "True"}


async def test_fewer_replicas_drain_the_newest(fleet: Any) -> None:
    await fleet.apply(1, env={"DRAIN": "0.5"})
    (old,) = await fleet.until_ready(1)
    await fleet.apply(2, env={"DRAIN": "0.5"})
    await fleet.until_ready(2)
    (new,) = (pod for pod in fleet.pods if pod.name != old.name)
    fleet.changes.clear()
    await fleet.apply(1, env={"DRAIN": "0.5"})
    # Out of the routing table at once, and there until it has finished.
    assert fleet.ready == [fleet.pod(old.name)]
    await fleet.until(lambda: fleet.pod(new.name).deleting)
    assert KEY in fleet.changes
    (left,) = await fleet.until_ready(1)
    assert left.name == old.name
    assert "drained" in fleet.log(new.name)


async def test_the_pod_that_costs_least_to_delete_goes_first(fleet: Any) -> None:
    def cost(deployment: dict[str, Any]) -> None:
        annotations = {"controller.kubernetes.io/pod-deletion-cost": "7"}
        deployment["spec"]["template"]["metadata"]["annotations"] = annotations

    fleet.adjust = cost
    await fleet.apply(1)
    (pod,) = await fleet.until_ready(1)
    assert pod.annotations == {"controller.kubernetes.io/pod-deletion-cost": "7"}


async def test_an_engine_deaf_to_sigterm_is_killed_after_the_grace_period(fleet: Any) -> None:
    def short(deployment: dict[str, Any]) -> None:
        deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0.5

    fleet.adjust = short
    await fleet.apply(1, env={"DEAF": "1"})
    (pod,) = await fleet.until_ready(1)
    pid = fleet.pid(pod.name)
    await fleet.cluster.remove(KEY)
    assert not fleet.alive(pid)
    assert fleet.pods == []


async def test_a_killed_engine_comes_back_as_the_same_pod(fleet: Any) -> None:
    await fleet.apply(1)
    (pod,) = await fleet.until_ready(1)
    os.kill(fleet.pid(pod.name), signal.SIGKILL)
    await fleet.until(lambda: not fleet.ready)
    assert fleet.pod(pod.name).waiting.startswith("CrashLoopBackOff: killed by signal 9")
    await fleet.until_ready(1)
    assert fleet.pod(pod.name).restarts == 1
    (document,) = fleet.cluster.list_pods(KEY)
    view = read_pod(document)
    assert view.ended is not None
    assert (view.ended.status, view.ends) == (137, 1)
    assert view.ended.message.endswith(f"see {fleet.cluster.logs / pod.name}.log")
    assert view.running_since is not None


async def test_a_crashing_engine_is_started_again_and_again(fleet: Any) -> None:
    await fleet.apply(1, env={"CRASH": "still broken"})
    await fleet.until(lambda: fleet.pods[0].restarts == 2)
    assert fleet.log(fleet.pods[0].name).count("still broken") >= 2


async def test_a_command_that_is_not_there_is_named(fleet: Any) -> None:
    def missing(deployment: dict[str, Any]) -> None:
        deployment["spec"]["template"]["spec"]["containers"][0]["command"] = ["no-such-engine"]

    fleet.adjust = missing
    await fleet.apply(1)
    await fleet.until(lambda: "cannot start no-such-engine: No such file or directory" in fleet.pods[0].waiting)


async def test_an_engine_that_is_not_ready_for_a_while_gets_nothing_meanwhile(fleet: Any, tmp_path: Path) -> None:
    flag = tmp_path / "unready"
    await fleet.apply(1, env={"UNREADY": str(flag)})
    (pod,) = await fleet.until_ready(1)
    flag.touch()
    await fleet.until(lambda: not fleet.ready)
    flag.unlink()
    await fleet.until_ready(1)
    assert fleet.pod(pod.name).restarts == 0


async def test_an_engine_that_fails_its_liveness_probe_is_restarted(fleet: Any, tmp_path: Path) -> None:
    flag = tmp_path / "sick"
    await fleet.apply(1, env={"SICK": str(flag)})
    (pod,) = await fleet.until_ready(1)
    flag.touch()
    await fleet.until(lambda: "3 liveness probes in a row failed" in fleet.pod(pod.name).waiting)
    flag.unlink()
    await fleet.until_ready(1)
    assert fleet.pod(pod.name).restarts == 1


async def test_an_engine_that_does_not_start_in_time_is_restarted(fleet: Any) -> None:
    def impatient(deployment: dict[str, Any]) -> None:
        probe = deployment["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
        probe |= {"periodSeconds": 0.1, "failureThreshold": 10}

    fleet.adjust = impatient
    await fleet.apply(1, env={"SLOW_START": "60"})
    await fleet.until(lambda: "did not start within 1 s" in fleet.pods[0].waiting)


async def test_a_changed_template_replaces_the_pods_without_a_gap(fleet: Any) -> None:
    await fleet.apply(2, rollout={"maxSurge": 1, "maxUnavailable": 0})
    before = {pod.name for pod in await fleet.until_ready(2)}
    await fleet.apply(2, rollout={"maxSurge": 1, "maxUnavailable": 0}, engine={"maxNumSeqs": 8})
    seen: list[tuple[int, int]] = []

    def replaced() -> bool:
        standing = [pod for pod in fleet.pods if not pod.deleting]
        seen.append((len(standing), len(fleet.ready)))
        return len(fleet.ready) == len(fleet.pods) == 2 and not before & {pod.name for pod in fleet.pods}

    await fleet.until(replaced)
    assert max(standing for standing, _ in seen) == 3
    assert min(ready for _, ready in seen) == 2
    assert fleet.status["updatedReplicas"] == 2


async def test_a_broken_template_leaves_the_old_pods_alone(fleet: Any) -> None:
    def impatient(deployment: dict[str, Any]) -> None:
        deployment["spec"]["progressDeadlineSeconds"] = 1

    fleet.adjust = impatient
    await fleet.apply(2)
    before = {pod.name for pod in await fleet.until_ready(2)}
    await fleet.apply(2, env={"CRASH": "broken"})
    failed = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    await fleet.until(lambda: any(failed.items() <= c.items() for c in fleet.status["conditions"]))
    assert {pod.name for pod in fleet.ready} == before


async def test_a_pod_counts_as_available_after_min_ready_seconds(fleet: Any) -> None:
    await fleet.apply(1, rollout={"minReadySeconds": 1})
    await fleet.until(lambda: fleet.ready)
    assert fleet.status["availableReplicas"] == 0
    fleet.changes.clear()
    await fleet.until(lambda: fleet.status["availableReplicas"] == 1)
    await fleet.until(lambda: KEY in fleet.changes)


async def test_a_resource_is_stamped_as_an_api_server_would(fleet: Any, document: Any) -> None:
    def put(**spec: Any) -> dict[str, Any]:
        fleet.cluster.put(parse_resource(document(**spec)))
        return dict(fleet.cluster.get(KEY)["metadata"])

    created, same, changed = put(), put(), put(engine={"maxNumSeqs": 8})
    assert [m["generation"] for m in (created, same, changed)] == [1, 1, 2]
    assert created["uid"] == same["uid"] == changed["uid"]
    assert len({m["resourceVersion"] for m in (created, same, changed)}) == 3
    await fleet.cluster.write_status(KEY, {"observedGeneration": 2})
    assert put(engine={"maxNumSeqs": 4})["generation"] == 3
    assert fleet.cluster.get(KEY)["status"] == {"observedGeneration": 2}


async def test_a_pods_annotation_is_its_own(fleet: Any) -> None:
    await fleet.apply(1)
    await fleet.until_ready(1)
    (pod,) = fleet.cluster.list_pods(KEY)
    await fleet.cluster.annotate_pod(KEY, pod["metadata"]["name"], {"a": "1"})
    await fleet.cluster.annotate_pod(KEY, "gone", {"a": "1"})
    (pod,) = fleet.cluster.list_pods(KEY)
    assert pod["metadata"]["annotations"] == {"a": "1"}
    await fleet.cluster.annotate_pod(KEY, pod["metadata"]["name"], {"a": None, "b": "2"})
    (pod,) = fleet.cluster.list_pods(KEY)
    assert pod["metadata"]["annotations"] == {"b": "2"}


async def test_a_deleted_pod_waits_for_requests_until_no_gateway_has_any(fleet: Any) -> None:
    def wait_long(deployment: dict[str, Any]) -> None:
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        container["lifecycle"]["preStop"]["sleep"]["seconds"] = 3600

    fleet.adjust = wait_long
    await fleet.apply(1)
    (pod,) = await fleet.until_ready(1)
    pid = fleet.pid(pod.name)
    removing = asyncio.create_task(fleet.cluster.remove(KEY))
    await asyncio.sleep(0.5)
    assert fleet.alive(pid)
    fleet.cluster.end_routing()
    await asyncio.wait_for(removing, 30)
    assert not fleet.alive(pid)
