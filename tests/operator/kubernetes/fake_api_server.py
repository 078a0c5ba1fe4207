"""An API server in memory that lists, watches, applies and deletes, and fails as a test asks."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from paternoster_operator.handlers import NETWORK_POLICIES, WATCHED

SERVED = {**WATCHED, "NetworkPolicy": NETWORK_POLICIES}
PLURALS = {plural: kind for kind, (_, _, plural) in SERVED.items()}
KINDS = {
    **PLURALS, "secrets": "Secret", "events": "Event", "namespaces": "Namespace", "leases": "Lease",
    "configmaps": "ConfigMap",
}  # fmt: skip
GROUPS = {(group, version) for group, version, _ in SERVED.values()} | {("events.k8s.io", "v1")}
VERBS = ["get", "list", "watch", "create", "patch", "delete"]


@dataclass(frozen=True)
class Fault:
    """What some requests are answered: a status, ``reset`` or ``silence``."""

    answer: int | str
    plural: str = ""
    """Plural of the requests that meet it; all where this is empty."""
    namespace: str = ""

    def meets(self, path: str) -> bool:
        parts = path.split("/")
        return (not self.plural or self.plural in parts) and (not self.namespace or self.namespace in parts)


@dataclass(frozen=True)
class _Change:
    """A change of one object: it is new without ``before``, and gone without ``after``."""

    version: int
    plural: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    def describe_to(self, plural: str, namespace: str, selector: str) -> dict[str, Any] | None:
        """The event that a watch gets of it; None for none. What matches no more is deleted to it, as it last was."""
        after, before = (
            each if each is not None and matches_selector(each, selector) else None
            for each in (self.after, self.before)
        )
        document = after or before
        if self.plural != plural or document is None or namespace not in ("", document["metadata"]["namespace"]):
            return None
        kind = "DELETED" if after is None else "ADDED" if before is None else "MODIFIED"
        metadata = {**document["metadata"], "resourceVersion": str(self.version)}
        return {"type": kind, "object": {**document, "metadata": metadata}}


class FakeApiServer:
    """Give it objects with :meth:`put`; ``fault`` is what requests meet from now on."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        """Objects by plural, namespace and name."""
        self.fault: Fault | None = None
        self.refused: Counter[str] = Counter()
        """Requests that met a fault, by path."""
        self.expired = False
        """Whether versions are too old to go on from."""
        self.sent: Counter[tuple[str, str, str]] = Counter()
        """Objects in lists and watches, by plural, namespace and name."""
        self.pages: list[tuple[str, int]] = []
        """Path and number of objects of each page of a list."""
        self.watched: list[tuple[str, dict[str, str]]] = []
        """Path and query of each watch."""
        self.writes: list[tuple[str, str, str]] = []
        """Token of the client, type of the body and path of each request that is to change something."""
        self.port = 0
        self._version = 1
        self._events: list[_Change] = []
        self._rest_of_lists: dict[str, list[dict[str, Any]]] = {}
        """Objects that a list has left after a page, by its ``continue``."""
        self._changed = asyncio.Condition()
        self._streams: set[tuple[str, asyncio.Transport]] = set()
        self._lost: set[tuple[str, asyncio.Transport]] = set()

    async def put(self, plural: str, document: dict[str, Any], *, hidden: bool = False) -> dict[str, Any]:
        """Create or change; ``hidden``: no watch reports it."""
        metadata = document["metadata"]
        key = (plural, metadata["namespace"], metadata["name"])
        before = self.objects.get(key)
        self._version += 1
        made = {"uid": f"uid-{plural}-{key[1]}-{key[2]}", "generation": 1}
        metadata_before = {} if before is None else before["metadata"]
        changed = {**(before or {}), **document}
        changed["metadata"] = {**made, **metadata_before, **metadata, "resourceVersion": str(self._version)}
        changed["kind"] = KINDS[plural]
        self.objects[key] = changed
        if not hidden:
            await self._publish(_Change(self._version, plural, before, changed))
        return changed

    async def remove(self, plural: str, namespace: str, name: str, *, hidden: bool = False) -> None:
        gone = self.objects.pop((plural, namespace, name))
        self._version += 1
        if not hidden:
            await self._publish(_Change(self._version, plural, gone, None))

    def fail(self, fault: Fault | None) -> None:
        """Let requests meet ``fault``, and break the watches that it concerns."""
        self.fault = fault
        self.refused.clear()
        if fault is not None:
            self.break_watches(fault)

    def break_watches(self, of: Fault) -> None:
        for path, transport in list(self._streams):
            if of.meets(path):
                transport.abort()

    def lose_watches(self) -> None:
        """Send nothing more on those that are open, and do not end them: a network that forgot them."""
        self._lost |= self._streams

    def most_refused(self) -> int:
        """How often the request was tried that was tried most."""
        return max(self.refused.values(), default=0)

    async def _publish(self, change: "_Change") -> None:
        async with self._changed:
            self._events.append(change)
            self._changed.notify_all()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if self.fault is not None and self.fault.meets(path):
            return await self._misbehave(request, self.fault.answer)
        parts = path.strip("/").split("/")
        discovered = _discover(parts)
        if discovered is not None:
            return web.json_response(discovered)
        namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""
        position = next((index for index, part in enumerate(parts) if part in KINDS and part != "namespaces"), None)
        if position is None:
            return refuse(404, "no such path")
        plural, names = parts[position], parts[position + 1 :]
        if request.method == "GET" and not names:
            if "watch" in request.query:
                return await self._watch(request, plural, namespace)
            return self._list(request, plural, namespace)
        if request.method == "GET":
            found = self.objects.get((plural, namespace, names[0]))
            return refuse(404, "not found") if found is None else web.json_response(found)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.writes.append((token, request.content_type, path))
        if request.method == "DELETE":
            await self.remove(plural, namespace, names[0])
            return web.json_response({"kind": "Status", "status": "Success"})
        if names[1:] == ["status"] and (plural, namespace, names[0]) not in self.objects:
            return refuse(404, "not found")
        body = json.loads(await request.read())
        metadata = body["metadata"] = {
            "name": (*names, f"made-{self._version}")[0],
            "namespace": namespace,
            **body["metadata"],
        }
        there = self.objects.get((plural, namespace, metadata["name"]))
        wanted = metadata.pop("resourceVersion", None)
        has = {} if there is None else there["metadata"]
        if (request.method == "POST" and has) or wanted not in (None, has.get("resourceVersion")):
            return refuse(409, "another version is there")
        if request.method == "PATCH" and "labels" in metadata:  # those of other managers stay
            metadata["labels"] = {**has.get("labels", {}), **metadata["labels"]}
        return web.json_response(await self.put(plural, body))

    def _list(self, request: web.Request, plural: str, namespace: str) -> web.Response:
        """One page, as ``limit`` and ``continue`` have it."""
        rest = self._rest_of_lists.pop(request.query.get("continue", ""), None)
        if rest is None:
            selector = request.query.get("labelSelector", "")
            places = [(place, o) for place, o in self.objects.items() if place[0] == plural]
            rest = [o for (_, where, _), o in places if namespace in ("", where) and matches_selector(o, selector)]
        length = int(request.query.get("limit", 0)) or len(rest)
        page, rest = rest[:length], rest[length:]
        self.pages.append((request.path, len(page)))
        metadata = {"resourceVersion": str(self._version)}
        if rest:
            metadata["continue"] = f"{len(self.pages)}"
            self._rest_of_lists[metadata["continue"]] = rest
        for document in page:
            self._count_object(plural, document)
        return web.json_response({"kind": f"{KINDS[plural]}List", "metadata": metadata, "items": page})

    def _count_object(self, plural: str, document: dict[str, Any]) -> None:
        self.sent[plural, document["metadata"]["namespace"], document["metadata"]["name"]] += 1

    async def _misbehave(self, request: web.Request, answer: int | str) -> web.StreamResponse:
        self.refused[request.path] += 1
        fault = self.fault
        if isinstance(answer, int):
            return refuse(answer, "as told")
        while answer == "silence" and self.fault is fault:
            await asyncio.sleep(0.01)
        if request.transport is not None:
            request.transport.abort()
        raise web.HTTPServiceUnavailable

    async def _watch(self, request: web.Request, plural: str, namespace: str) -> web.StreamResponse:
        version, selector = int(request.query["resourceVersion"]), request.query.get("labelSelector", "")
        self.watched.append((request.path, dict(request.query)))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        transport: Any = request.transport
        stream = (request.path, transport)
        self._streams.add(stream)
        try:
            if self.expired:
                gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
                await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
                return response
            while not transport.is_closing():
                if stream in self._lost:
                    await asyncio.sleep(0.01)
                    continue
                for change in [each for each in self._events if each.version > version]:
                    version = change.version
                    event = change.describe_to(plural, namespace, selector)
                    if event is not None:
                        self._count_object(plural, event["object"])
                        await response.write(json.dumps(event).encode() + b"\n")
                async with self._changed:
                    if self._events and self._events[-1].version > version:
                        continue
                    try:
                        async with asyncio.timeout(0.1):
                            await self._changed.wait()
                    except TimeoutError:
                        continue
        finally:
            self._streams.discard(stream)
        return response


def matches_selector(document: dict[str, Any], selector: str) -> bool:
    """Whether the labels match ``selector``: ``name=value``, ``name``, ``name in (a,b)`` or ``notin (a,b)``."""
    found = document["metadata"].get("labels", {})
    for part in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        name, operator, values = re.fullmatch(r"(\S+?)(?:(=| in | notin )(.*))?", part).groups()  # type: ignore[union-attr]
        allowed = values.strip("()").split(",") if operator else []
        if operator == " notin ":
            if found.get(name) in allowed:
                return False
        elif name not in found or (operator and found[name] not in allowed):
            return False
    return True


def refuse(status: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": status, "message": message}, status=status)


def _discover(parts: Collection[str]) -> dict[str, Any] | None:
    """What the API server serves, where a path asks for that."""
    match list(parts):
        case ["api"]:
            return {"versions": ["v1"]}
        case ["apis"]:
            groups = []
            for group, version in sorted(each for each in GROUPS if each[0]):
                served = {"groupVersion": f"{group}/{version}", "version": version}
                groups.append({"name": group, "versions": [served], "preferredVersion": served})
            return {"groups": groups}
        case ["api", version]:
            group = ""
        case ["apis", group, version]:
            pass
        case _:
            return None
    kinds = [plural for _, (of, at, plural) in SERVED.items() if (of, at) == (group, version)]
    kinds += ["namespaces", "secrets"] if group == "" else []
    return {
        "resources": [
            {
                "name": plural, "kind": KINDS[plural], "singularName": "", "namespaced": plural != "namespaces",
                "verbs": VERBS,
            }
            for plural in kinds
        ]
    }  # fmt: skip


@asynccontextmanager
async def serve(server: FakeApiServer, folder: Path) -> AsyncIterator[Path]:
    """Serve it on this machine; gives a kubeconfig for it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    try:
        yield file
    finally:
        await runner.cleanup()
