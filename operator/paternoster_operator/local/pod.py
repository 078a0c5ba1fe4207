"""One pod as a process: its document is kept as a kubelet would keep it."""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from paternoster_contract.labels import (
    ADAPTERS_ENV,
    ADAPTERS_LIMIT_ENV,
    ADMIN_PORT_NAME,
    DELETION_COST,
    ENGINE_PORT_NAME,
    ENGINE_TYPE,
    MODEL_CONTAINER,
    MODELS_ENV,
    UPSTREAM_MODEL,
)
from paternoster_contract.supervise import supervise_task
from paternoster_operator.api.pod.owned import MODEL_VOLUME
from paternoster_operator.desired.foreign_engine import PLUGIN_FOLDER, PLUGIN_VOLUME
from paternoster_operator.desired.model_source import MODEL_LINK, OFFLINE_ENV
from paternoster_operator.engines import adapter as engines
from paternoster_operator.engines.kinds import KINDS
from paternoster_operator.engines.vllm_plugin import write_plugin
from paternoster_operator.local.ports import HOST, PortPool, ReservedPort
from paternoster_operator.local.probe import Probes
from paternoster_operator.local.program import Launch, Program, find_program
from paternoster_operator.local.secrets import MountedSecrets
from paternoster_operator.pods.log_lines import find_cause_line
from paternoster_operator.pods.reading import read_engine_type

_VARIABLE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
LONGEST_WHY = 300
"""Characters of why a run ended, before the path of its log."""
_OF_CONTAINERS = (ADAPTERS_ENV, ADAPTERS_LIMIT_ENV, MODELS_ENV, OFFLINE_ENV, "HOME", "USER")
"""Variables for a container alone: here an engine fetches its model itself, and has this user's home."""


class LocalPod:
    """``on_change()`` is called when its process started, ended, or became ready or unready."""

    def __init__(
        self,
        name: str,
        namespace: str,
        template: Mapping[str, Any],
        template_hash: str,
        logs: Path,
        secrets: MountedSecrets,
        ports: PortPool,
        on_change: Callable[[], None],
    ) -> None:
        self.name = name
        self._secrets = secrets
        self._pool = ports
        self._ports: dict[str, ReservedPort] = {}
        """Ports by name of the container's port, the same in each run."""
        self.template_hash = template_hash
        self.created = time.monotonic()
        self._deletion: asyncio.Task[None] | None = None
        self._unrouted = asyncio.Event()
        """Set once no gateway has a request here."""
        self._ready_since: float | None = None
        self._ready_changed = _format_now()
        """When it last became ready or unready, as far as :attr:`_ready_since` has it."""
        self._metadata: dict[str, Any] = {
            "name": name,
            "namespace": namespace,
            "uid": str(uuid4()),
            "labels": dict(template["metadata"]["labels"]),
            "annotations": dict(template["metadata"].get("annotations", {})),
            "creationTimestamp": _format_now(),
        }
        self._spec: dict[str, Any] = deepcopy(dict(template["spec"]))
        self._container: dict[str, Any] = self._spec["containers"][0]
        engine_type = read_engine_type(self._metadata["annotations"].get(ENGINE_TYPE))
        self._kind = KINDS[engine_type]
        self._program = Program(
            f"pod {name}",
            self._launch,
            Probes.from_container(self._container),
            logs / f"{name}.log",
            on_change,
            partial(find_cause_line, engine_type),
        )

    @property
    def deleting(self) -> bool:
        return self._deletion is not None

    @property
    def ready(self) -> bool:
        return self._program.ready and not self.deleting

    def is_available(self, min_ready_seconds: float) -> bool:
        """Ready for long enough to count on it."""
        since = self._program.ready_since
        return self.ready and since is not None and time.monotonic() - since >= min_ready_seconds

    @property
    def deletion_cost(self) -> int:
        """Cost in the annotation of that name; pods that cost less go first."""
        return int(self._metadata["annotations"].get(DELETION_COST, "0"))

    def set_annotations(self, annotations: Mapping[str, str | None]) -> None:
        """Set annotations, or remove those that are None."""
        merged = {**self._metadata["annotations"], **annotations}
        self._metadata["annotations"] = {name: value for name, value in merged.items() if value is not None}

    def to_document(self) -> dict[str, Any]:
        """The pod as an API server would give it."""
        program = self._program
        state: dict[str, Any] = {"running": {"startedAt": _write_time(program.began)} if program.began else {}}
        if not program.running:
            reason = "CrashLoopBackOff" if program.last_end else "ContainerCreating"
            message = f"{program.last_end}; see {program.log_file}" if program.last_end else ""
            state = {"waiting": {"reason": reason, "message": message}}
        ready = "True" if program.ready else "False"
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self._metadata,
            "spec": self._spec,
            "status": {
                "phase": "Running" if program.running else "Pending",
                "podIP": HOST,
                "conditions": [
                    {"type": "PodScheduled", "status": "True"},
                    {"type": "ContainersReady", "status": ready},
                    {"type": "Ready", "status": ready, "lastTransitionTime": self._last_transition()},
                ],
                "containerStatuses": [
                    {
                        "name": self._container["name"],
                        "ready": program.ready,
                        "restartCount": program.restarts,
                        "state": state,
                        "lastState": self._describe_last_run(),
                    }
                ],
            },
        }

    def _describe_last_run(self) -> dict[str, Any]:
        """Describe the last run like a kubelet; the message is one line with the reason, and where its log is."""
        if (last := self._program.last_run) is None:
            return {}
        status = last.status if last.status >= 0 else 128 - last.status
        message = f"{last.why[:LONGEST_WHY]}; see {self._program.log_file}".removeprefix("; ")
        times = {"startedAt": _write_time(last.began), "finishedAt": _write_time(last.ended)}
        return {"terminated": {"exitCode": status, "reason": "Error", "message": message, **times}}

    def delete(self) -> "asyncio.Task[None]":
        """Out of the routing table from now on; the task ends when the process has answered all and is gone."""
        if self._deletion is None:
            self._metadata["deletionTimestamp"] = _format_now()
            self._deletion = supervise_task(self._finish, "delete-pod", again=False)
        return self._deletion

    def end_routing(self) -> None:
        """No gateway has a request here any more: a deletion waits for none."""
        self._unrouted.set()

    def kill(self) -> None:
        self._program.kill()

    async def _finish(self) -> None:
        if self._program.ready:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._unrouted.wait(), self._pre_stop_seconds())
        await self._program.stop(self._spec["terminationGracePeriodSeconds"])
        for port in self._ports.values():
            self._pool.release(port)
        self._ports.clear()
        self._secrets.unmount(self.name)

    def _last_transition(self) -> str:
        since = self._program.ready_since
        if since != self._ready_since:
            ago = 0.0 if since is None else time.monotonic() - since
            self._ready_since, self._ready_changed = since, _format_now(ago)
        return self._ready_changed

    def _pre_stop_seconds(self) -> float:
        hook = self._container.get("lifecycle", {}).get("preStop", {})
        return float(hook.get("sleep", {}).get("seconds", 0))

    def _launch(self) -> Launch:
        """The container's command on this machine, with variables replaced as Kubernetes does. Raises ``OSError``."""
        container, annotations = self._container, self._metadata["annotations"]
        mounted = self._secrets.mount(self.name, self._metadata["namespace"], self._spec)
        if any(volume["name"] == PLUGIN_VOLUME for volume in self._spec["volumes"]):
            mounted[PLUGIN_FOLDER] = str(self._secrets.folder_of(self.name, PLUGIN_VOLUME))
            write_plugin(Path(mounted[PLUGIN_FOLDER]))
        env = {entry["name"]: entry["value"] for entry in container.get("env", []) if "value" in entry}
        fetch = self._prepare_fetch([*container["command"], *container.get("args", []), *env.values()], mounted)
        for named in container["ports"]:
            port = self._ports.get(named["name"]) or self._ports.setdefault(named["name"], self._pool.acquire())
            named["containerPort"] = port.number
        api, admin = self._ports[ENGINE_PORT_NAME], self._ports.get(ADMIN_PORT_NAME)
        if not self._kind.inherits_sockets:
            api.share_port()
        launch = self._kind.start_locally(
            engines.Launch(container["command"], container.get("args", []), env),
            HOST,
            engines.BoundPort(api.number, api.fileno()),
            None if admin is None else engines.BoundPort(admin.number, admin.fileno()),
        )
        values: dict[str, str] = {}
        for name, value in launch.env.items():
            values[name] = expand_variables(mounted.get(value, value), values)
        if (upstream := annotations.get(UPSTREAM_MODEL)) is not None:
            annotations[UPSTREAM_MODEL] = mounted.get(upstream, upstream)
        words = (*launch.command, *launch.args)
        program, *flags = (expand_variables(mounted.get(word, word), values) for word in words)
        own = {name: value for name, value in values.items() if name not in _OF_CONTAINERS}
        ports = list(self._ports.values())
        return Launch([*fetch, find_program(program), *flags], self._secrets.temporary | own, api.url, ports)

    def _prepare_fetch(self, words: Iterable[str], mounted: dict[str, str]) -> list[str]:
        """What runs before the engine's command: nothing, or the fetch of a model that the pod links for its engine.

        Adds to ``mounted`` where those of ``words`` that name the link are on this machine.
        """
        containers = {each["name"]: each["args"] for each in self._spec.get("initContainers", ())}
        if MODEL_LINK not in (args := containers.get(MODEL_CONTAINER, [])):
            return []
        folder = self._secrets.folder_of(self.name, MODEL_VOLUME)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        link = str(folder / "link")
        mounted |= {
            word: link + word.removeprefix(MODEL_LINK)
            for word in words
            if word == MODEL_LINK or word.startswith(f"{MODEL_LINK}/")
        }
        return [find_program("paternoster"), "pull", args[0], "--no-refresh", "--link", link, "--exec"]


def expand_variables(text: str, values: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced by the value of that name, as in a container's command; ``$$`` is a dollar sign."""
    return _VARIABLE.sub(lambda found: "$" if found[0] == "$$" else values.get(found[1], found[0]), text)


def _format_now(ago_seconds: float = 0.0) -> str:
    return _write_time(datetime.now(UTC) - timedelta(seconds=ago_seconds))


def _write_time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
