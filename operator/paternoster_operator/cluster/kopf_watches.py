"""Watches without end, in place of kopf's: list, then watch, and both anew with a pause after any failure.

kopf 1.45 ends the process where a watch is answered 404, or with anything that it does not expect, once; where it is
answered 403 or 5xx nine times; and where the API server refuses its credentials. It offers no setting for the first and
the last, and for the second none that reports the failure. After a list it misses what was deleted since the
one before. So :func:`install_watches` replaces the two functions of kopf that ask the API server for the objects and
the kinds that it watches; all else of kopf stays: queues, workers, indices. A test (``test_watches.py``) fails where
another kopf calls them otherwise.
"""

import asyncio
import dataclasses
import itertools
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Protocol

import aiohttp
import kopf
from kopf._cogs.clients import api, errors, scanning, watching
from kopf._cogs.structs import bodies, references

from paternoster_contract import labels
from paternoster_contract.error_text import error_text
from paternoster_operator.cluster.api_requests import parse_retry_after
from paternoster_operator.cluster.kopf_toggles import install_toggles
from paternoster_operator.cluster.watch_states import EVERY_NAMESPACE, Watch, WatchStates

log = logging.getLogger(__name__)

Kind = tuple[str, str, str]
"""Group, version and plural."""

PAUSES_SECONDS = (1.0, 2.0, 4.0)
"""Most between failed attempts, at least half of it; the last one repeats. With a request's time limit it adds up to
14 s."""
REQUEST_SECONDS = 10.0
"""Until a page of a list is there, or a watch is answered."""
SILENCE_SECONDS = 70.0
"""Without an event a watch counts as lost: the API server sends bookmarks every minute."""
PAGE_OBJECTS = 500
"""Objects in a page of a list: few enough for the time limit on a slow API server."""
WATCH_SECONDS = 600.0
"""After at most so long the API server is to end a watch, which goes on with the next one."""
LISTED = "LISTED"
"""Event of an object that a list has."""
SHORTEST_WATCH_SECONDS = 1.0
"""A watch that ends sooner, without an event, has failed, as client-go has it."""
LOGIN_SECONDS = 4.0
"""Least time between two logins."""
LONGEST_FAULT = 300
"""Most characters of a failure that are kept."""

_requests = logging.getLogger("kopf.requests")
"""kopf logs each failed request as an error; here the watch that it failed for is logged, once a minute."""
_requests.setLevel(logging.CRITICAL)
_logins = itertools.count()


def configure_watches(settings: kopf.OperatorSettings, selectors: Mapping[Kind, str]) -> None:
    """Set pauses, time limits and label selectors by kind, where kopf has settings for them."""
    settings.networking.error_backoffs = PAUSES_SECONDS
    settings.networking.request_timeout = REQUEST_SECONDS
    settings.networking.connect_timeout = REQUEST_SECONDS
    settings.watching.inactivity_timeout = SILENCE_SECONDS
    settings.watching.chunk_size = PAGE_OBJECTS
    for kind, selector in selectors.items():
        settings.watching.label_selectors[kind] = selector


class WatchTraffic(Protocol):
    """Counters of the answers to lists and watches, by the kind of their objects."""

    def count_object(self, kind: str, event: str) -> None: ...

    def count_unchanged(self, kind: str) -> None: ...

    def count_bytes(self, kind: str, request: str, length: int) -> None: ...


def install_watches(states: WatchStates, kinds: Collection[Kind], traffic: WatchTraffic) -> None:
    """Have kopf watch with :class:`ResourceWatch`, and wait until all of ``kinds`` are served."""

    async def watch_resource(
        *,
        settings: kopf.OperatorSettings,
        resource: references.Resource,
        namespace: references.Namespace,
        operator_paused: Any = None,  # kopf pauses operators with peers, and these have none
        _iterations: int | None = None,
    ) -> AsyncIterator[watching.Bookmark | bodies.RawEvent]:
        async for event in ResourceWatch(states, traffic, settings, resource, namespace).read_events():
            yield event

    async def scan_resources(
        *, settings: kopf.OperatorSettings, logger: Any, groups: Collection[str] | None = None
    ) -> Collection[references.Resource]:
        return await find_kinds(settings, kinds)

    install_toggles()
    watching.infinite_watch = watch_resource
    scanning.scan_resources = scan_resources


async def find_kinds(settings: kopf.OperatorSettings, kinds: Collection[Kind]) -> Collection[references.Resource]:
    """The kinds that the API server serves, once all of ``kinds`` are there: kopf asks once, and never again."""
    wanted = {*kinds, ("", "v1", "namespaces")}  # kopf begins with the namespaces
    last = ""
    for pause in repeat_pauses(settings):
        try:
            found: set[references.Resource] = set()
            for group, version in sorted({(group, version) for group, version, _ in wanted}):
                found |= {*await _read_kinds(settings, group, version)}
            missing = sorted(wanted - {(each.group, each.version, each.plural) for each in found})
            if not missing:
                return found
            fault = "; ".join(f"{kind}.{group or 'core'} is not served yet" for group, _, kind in missing)
            if any(group == labels.GROUP for group, _, _ in missing):
                fault += ": waiting for its CRD"
        except Exception as error:
            fault = describe_fault(error)
        if fault != last:
            log.warning("looking for the kinds to watch: %s", fault)
        last = fault
        await asyncio.sleep(pause)
    raise AssertionError("the pauses never end")


async def _read_kinds(settings: kopf.OperatorSettings, group: str, version: str) -> Collection[references.Resource]:
    # One after the other: kopf's own scan leaves requests behind where it is cancelled.
    return await scanning._read_version(
        url=f"/apis/{group}/{version}" if group else f"/api/{version}",
        group=group,
        version=version,
        preferred=True,
        settings=without_retries(settings),
        logger=_requests,
    )


class ResourceWatch:
    """One watch: of ``resource`` in ``namespace``, or in all namespaces."""

    def __init__(
        self,
        states: WatchStates,
        traffic: WatchTraffic,
        settings: kopf.OperatorSettings,
        resource: references.Resource,
        namespace: references.Namespace,
    ) -> None:
        self._states = states
        self._traffic = traffic
        self._settings = settings
        self._once = without_retries(settings)
        self._resource = resource
        self._namespace = namespace
        self._watch = Watch(resource.kind or resource.plural, EVERY_NAMESPACE if namespace is None else namespace)
        self._objects: dict[str, dict[str, Any]] = {}
        """What was listed or seen since, in short, by uid: what a later list lacks was deleted meanwhile."""
        self._answered_at: float | None = None
        """When the first watch since the last list was answered."""

    async def read_events(self) -> AsyncIterator[watching.Bookmark | bodies.RawEvent]:
        """Events as kopf's watcher takes them, until the task is cancelled."""
        self._states.add(self._watch)
        pauses = repeat_pauses(self._settings)
        while True:
            self._answered_at = None
            try:
                async for event in self._list_and_follow():
                    yield event
            except Exception as error:
                if self._has_worked():
                    pauses = repeat_pauses(self._settings)
                    if is_expired(error):  # nothing happened for as long as the API server keeps versions
                        continue
                pause = max(draw_pause(next(pauses)), _read_retry_after(error))
                refused = isinstance(error, errors.APIForbiddenError | errors.APINotFoundError)
                if self._states.record_failure(self._watch, describe_fault(error), refused=refused):
                    yield watching.Bookmark.LISTED  # kopf keeps every handler waiting for every list
            await asyncio.sleep(pause)

    async def _list_and_follow(self) -> AsyncIterator[watching.Bookmark | bodies.RawEvent]:
        """List once, then watch from there; raises what the first failed request raises."""
        listed: set[str] = set()
        version: str | None = None
        async for page, version_of_page in self._read_pages():
            version = version_of_page
            for document in page:
                uid = _find_uid(document)
                listed.add(uid)
                self._traffic.count_object(self._watch.kind, LISTED)
                if self._is_news(uid, document):
                    self._objects[uid] = _shorten_object(document)
                    yield {"type": None, "object": document}
                else:
                    self._traffic.count_unchanged(self._watch.kind)
        for uid in self._objects.keys() - listed:
            gone: Any = self._objects.pop(uid)
            yield {"type": "DELETED", "object": gone}
        self._states.record_list(self._watch, len(listed))
        yield watching.Bookmark.LISTED
        while True:
            began, events = time.monotonic(), 0
            async with self._limit_time():
                response = await self._open_watch(version)
            self._states.record_answer(self._watch)
            self._answered_at = self._answered_at or began
            try:
                async with response:
                    async for line in api.iter_jsonlines(response.content):
                        self._traffic.count_bytes(self._watch.kind, "watch", len(line) + 1)
                        event: Any = json.loads(line)
                        kind, document = event["type"], event["object"]
                        if kind == "ERROR":
                            raise WatchEnded(document.get("message"), document.get("code"))
                        events += 1
                        version = document["metadata"].get("resourceVersion", version)
                        if kind in ("ADDED", "MODIFIED", "DELETED"):
                            self._traffic.count_object(self._watch.kind, kind)
                            self._remember_object(kind, document)
                            yield event
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError):
                pass  # what has broken, or was silent for longer than bookmarks are apart, goes on where it was
            if not events and time.monotonic() - began < SHORTEST_WATCH_SECONDS:
                raise WatchEnded("the watch ended at once, without an event")
            await asyncio.sleep(self._settings.watching.reconnect_backoff)

    async def _read_pages(self) -> AsyncIterator[tuple[list[Any], str | None]]:
        """Objects and version of each page of the list; kopf's own list does not tell how long an answer is."""
        params = {"limit": str(self._settings.watching.chunk_size), **self._select_objects()}
        while True:
            async with self._limit_time():
                url = self._resource.get_url(namespace=self._namespace, params=params)
                async with await api.request("get", url, settings=self._once, logger=_requests) as response:
                    text = await response.read()
            self._traffic.count_bytes(self._watch.kind, "list", len(text))
            page = json.loads(text)
            # Objects of a list lack what the list itself has, which a server may leave out.
            kind = {"apiVersion": page.get("apiVersion"), "kind": page.get("kind", "").removesuffix("List")}
            yield [{**kind, **each} for each in page["items"]], page["metadata"].get("resourceVersion")
            if not page["metadata"].get("continue"):
                return
            params["continue"] = page["metadata"]["continue"]

    def _select_objects(self) -> dict[str, str]:
        selectors = self._settings.watching.label_selectors.collect(self._resource)
        return {"labelSelector": ",".join(sorted(set(selectors)))} if selectors else {}

    async def _open_watch(self, version: str | None) -> aiohttp.ClientResponse:
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            # Drawn, so that the watches of all kinds and namespaces do not begin anew in one moment.
            "timeoutSeconds": str(round(draw_pause(WATCH_SECONDS))),
            **self._select_objects(),
        }
        if version is not None:
            params["resourceVersion"] = version
        silence = self._settings.watching.inactivity_timeout
        limits = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_SECONDS, sock_read=silence)
        url = self._resource.get_url(namespace=self._namespace, params=params)
        return await api.request("get", url, settings=self._once, timeout=limits, logger=_requests)

    def _limit_time(self) -> asyncio.Timeout:
        """Also of the time that a request waits for credentials."""
        return asyncio.timeout(self._settings.networking.request_timeout)

    def _has_worked(self) -> bool:
        return self._answered_at is not None and time.monotonic() - self._answered_at >= SHORTEST_WATCH_SECONDS

    def _is_news(self, uid: str, document: bodies.RawBody) -> bool:
        version = document["metadata"].get("resourceVersion")
        before = self._objects.get(uid)
        return before is None or version is None or before["metadata"].get("resourceVersion") != version

    def _remember_object(self, kind: str, document: bodies.RawBody) -> None:
        if kind == "DELETED":
            self._objects.pop(_find_uid(document), None)
        else:
            self._objects[_find_uid(document)] = _shorten_object(document)


class WatchEnded(Exception):
    """The API server ended a watch that must begin with a list again."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


def is_expired(error: Exception) -> bool:
    """Whether the API server has the version no more from which a watch was to go on."""
    code = error.status if isinstance(error, errors.APIError) else getattr(error, "code", None)
    return code == HTTPStatus.GONE


async def log_in(memo: Any, **context: Any) -> kopf.ConnectionInfo:
    """Credentials for kopf, without end: it takes none twice that were refused once, and goes without from then on.

    A 401 may pass, too: an API server that cannot ask who a token is of answers it.
    """
    if "logged_in_at" in memo:
        log.warning("the API server refuses the operator's credentials (401): they are read again")
        await asyncio.sleep(memo.logged_in_at + LOGIN_SECONDS - time.monotonic())
    while True:
        try:
            found: kopf.ConnectionInfo | None = await asyncio.to_thread(kopf.login_via_client, **context)
            if found is not None:
                memo.logged_in_at = time.monotonic()
                return dataclasses.replace(found, priority=next(_logins))  # unlike any before
            fault = "neither a service account nor a kubeconfig is there"
        except Exception as error:
            fault = describe_fault(error)
        log.warning("cannot log in to the API server: %s", fault)
        await asyncio.sleep(LOGIN_SECONDS)


def without_retries(settings: kopf.OperatorSettings) -> kopf.OperatorSettings:
    """Copy settings for requests that are sent once."""
    return dataclasses.replace(settings, networking=dataclasses.replace(settings.networking, error_backoffs=()))


def repeat_pauses(settings: kopf.OperatorSettings) -> Iterator[float]:
    """Seconds between failed attempts, without end."""
    backoffs = settings.networking.error_backoffs
    pauses = list(backoffs) if not isinstance(backoffs, int | float) else [backoffs]
    return itertools.chain(pauses, itertools.repeat(pauses[-1]))


def draw_pause(seconds: float) -> float:
    """A time between half of ``seconds`` and all of them: many that wait for the same do not go on in one moment."""
    return seconds * random.uniform(0.5, 1)


def describe_fault(error: Exception) -> str:
    """A failed request in words."""
    if isinstance(error, errors.APIError):
        text = error.message or (error.args[0] if error.args else "")
        return f"HTTP {error.status}: {text}"[:LONGEST_FAULT]
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return f"{type(error).__name__}: {error_text(error)}"[:LONGEST_FAULT]


def _read_retry_after(error: Exception) -> float:
    return parse_retry_after(error.headers) if isinstance(error, errors.APIError) else 0.0


def _find_uid(document: bodies.RawBody) -> str:
    metadata = document["metadata"]
    return metadata.get("uid") or f"{metadata.get('namespace')}/{metadata.get('name')}"


def _shorten_object(document: bodies.RawBody) -> dict[str, Any]:
    """What handlers need of an object that is gone."""
    metadata: Any = document["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "generation", "labels")
    return {
        "apiVersion": document.get("apiVersion"),
        "kind": document.get("kind"),
        "metadata": {name: metadata[name] for name in fields if name in metadata},
    }
