"""A Deployment of this machine: keeps as many pods as it says, of the template it says."""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

from paternoster_operator.local.pod import LocalPod
from paternoster_operator.local.ports import PortPool
from paternoster_operator.local.rollout import PodFacts, plan_rollout
from paternoster_operator.local.secrets import MountedSecrets

Document = Mapping[str, Any]


class LocalDeployment:
    """What a Deployment's controller does, in small. ``on_change()`` is called when a pod changed."""

    def __init__(self, logs: Path, secrets: MountedSecrets, ports: PortPool, on_change: Callable[[], None]) -> None:
        self._logs = logs
        self._secrets = secrets
        self._ports = ports
        self._on_change = on_change
        self._document: Document | None = None
        self._template_hash = ""
        self._pods: dict[str, LocalPod] = {}
        self._progress: tuple[object, float] = (None, time.monotonic())
        """What the pods were like, and since when."""

    def list_pods(self) -> list[dict[str, Any]]:
        """Documents of its pods, those being deleted included."""
        return [pod.to_document() for pod in self._pods.values()]

    def annotate_pod(self, pod: str, annotations: Mapping[str, str | None]) -> None:
        """One that is gone is no error."""
        if pod in self._pods:
            self._pods[pod].set_annotations(annotations)
            self._on_change()

    def apply(self, document: Document) -> None:
        """From now on, be like ``document``."""
        self._document = document
        self._template_hash = _hash_template(document["spec"]["template"])
        self._roll_once()

    async def delete(self) -> None:
        """End every pod in its own time."""
        self._document = None
        await asyncio.gather(*[self._end_pod(pod) for pod in self._pods.values()])

    def end_routing(self) -> None:
        """No gateway has a request at its pods any more."""
        for pod in self._pods.values():
            pod.end_routing()

    def kill(self) -> None:
        """End every process now; those of pods that are not being deleted start again."""
        for pod in self._pods.values():
            pod.kill()

    def build_status(self) -> dict[str, Any]:
        """The Deployment's status as its controller would write it."""
        if self._document is None:
            return {}
        spec = self._document["spec"]
        facts = self._list_facts()
        counts = {
            "replicas": len(facts),
            "updatedReplicas": sum(pod.updated for pod in facts),
            "readyReplicas": sum(pod.ready for pod in facts),
            "availableReplicas": sum(pod.available for pod in facts),
        }
        wanted = spec["replicas"]
        floor = wanted - spec["strategy"]["rollingUpdate"]["maxUnavailable"]
        return {
            "observedGeneration": self._document["metadata"]["generation"],
            **counts,
            "conditions": [
                {"type": "Available", "status": "True" if counts["availableReplicas"] >= floor else "False"},
                self._progressing_condition(
                    done=set(counts.values()) == {wanted}, observed=(self._template_hash, wanted, counts)
                ),
            ],
        }

    def _progressing_condition(self, *, done: bool, observed: object) -> dict[str, str]:
        """``observed`` differs from the last one whenever something moved."""
        assert self._document is not None
        last, since = self._progress
        if done or observed != last:
            since = time.monotonic()
            self._progress = (observed, since)
        deadline = self._document["spec"]["progressDeadlineSeconds"]
        if time.monotonic() - since <= deadline:
            return {"type": "Progressing", "status": "True"}
        message = f"nothing moved for {deadline} s, and not every replica is updated and available"
        return {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": message}

    def _list_facts(self) -> list[PodFacts]:
        assert self._document is not None
        min_ready = self._document["spec"]["minReadySeconds"]
        return [
            PodFacts(
                name=pod.name,
                updated=pod.template_hash == self._template_hash,
                created=pod.created,
                ready=pod.ready,
                available=pod.is_available(min_ready),
                deletion_cost=pod.deletion_cost,
            )
            for pod in self._pods.values()
            if not pod.deleting
        ]

    def _roll_once(self) -> None:
        """One step of the rollout; every change of a pod brings the next."""
        if self._document is None:
            return
        spec, metadata = self._document["spec"], self._document["metadata"]
        rolling = spec["strategy"]["rollingUpdate"]
        facts = self._list_facts()
        step = plan_rollout(
            facts, replicas=spec["replicas"], max_surge=rolling["maxSurge"], max_unavailable=rolling["maxUnavailable"]
        )
        for name in step.end:
            self._end_pod(self._pods[name])
        for _ in range(step.start):
            name = f"{metadata['name']}-{self._template_hash[:6]}-{token_hex(3)[:5]}"
            self._pods[name] = LocalPod(
                name,
                metadata["namespace"],
                spec["template"],
                self._template_hash,
                self._logs,
                self._secrets,
                self._ports,
                self._pod_changed,
            )
        if step.end:
            self._on_change()
        if any(pod.ready and not pod.available for pod in facts):
            asyncio.get_running_loop().call_later(spec["minReadySeconds"], self._pod_changed)

    def _pod_changed(self) -> None:
        self._roll_once()
        self._on_change()

    def _end_pod(self, pod: LocalPod) -> "asyncio.Task[None]":
        """Delete a pod; it is forgotten once it is gone."""
        deletion = pod.delete()
        deletion.add_done_callback(lambda _: self._remove_pod(pod))
        return deletion

    def _remove_pod(self, pod: LocalPod) -> None:
        if self._pods.pop(pod.name, None) is not None:
            self._pod_changed()


def _hash_template(template: Document) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()
