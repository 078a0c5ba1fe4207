"""Give every object of a fleet the label by which its shard watches it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from paternoster_operator.cluster.buckets import has_right_bucket
from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.queue import WorkQueue

log = logging.getLogger(__name__)

FLEETS_AT_ONCE = 8
RETRY_SECONDS = 5.0
"""Time until a fleet is looked at again whose objects lack the label, or which may not have it yet."""


class LabelledObjects(Protocol):
    """The objects that this shard watches; :meth:`label_object` raises :class:`ClusterError`."""

    def list_mislabelled(self, key: Key) -> Sequence[tuple[str, str]]: ...

    def list_in_buckets(self, buckets: Collection[int]) -> Sequence[Key]: ...

    async def label_object(self, key: Key, kind: str, name: str) -> None: ...


class BucketLabels:
    """Labels what :meth:`observe` has seen, while it is started.

    An LLMDeployment comes last, so that the shard that gets it has seen what is there of it, or will in a moment.
    """

    def __init__(
        self, objects: LabelledObjects, may_label: Callable[[Key], bool], is_ours: Callable[[Key], Awaitable[bool]]
    ) -> None:
        """``is_ours``: whether no other installation has the fleet, whose objects stay as they are."""
        self._objects = objects
        self._is_ours = is_ours
        self._may_label = may_label
        self._queue: WorkQueue[Key] = WorkQueue(
            self._label_if_allowed, workers=FLEETS_AT_ONCE, group=lambda key: key.namespace
        )

    def observe(self, key: Key, metadata: Mapping[str, Any]) -> None:
        """An object of the fleet was seen."""
        if not has_right_bucket(key, metadata):
            self._queue.add(key)

    def start(self) -> None:
        """Begin to label; needs a running event loop."""
        self._queue.start()

    async def stop(self) -> None:
        """Another process labels."""
        await self._queue.stop()

    async def label_buckets(self, buckets: Collection[int]) -> None:
        """Label all objects of the buckets' fleets, so that other shards see them."""
        keys = self._objects.list_in_buckets(buckets)
        for start in range(0, len(keys), FLEETS_AT_ONCE):
            labelling = (self._label_fleet(key) for key in keys[start : start + FLEETS_AT_ONCE])
            for error in await asyncio.gather(*labelling, return_exceptions=True):
                if isinstance(error, ClusterError):
                    # The shard that sees unlabelled objects tries again; the other fleets of the bucket do not wait.
                    log.warning("an object cannot be labelled with its bucket: %s", error)
                elif isinstance(error, BaseException):
                    raise error

    async def _label_if_allowed(self, key: Key) -> float | None:
        if self._may_label(key) and not await self._label_fleet(key):
            return 12 * RETRY_SECONDS  # until the other may have given it up: each look may ask the API server
        return RETRY_SECONDS if self._objects.list_mislabelled(key) else None

    async def _label_fleet(self, key: Key) -> bool:
        """False for a fleet of another installation."""
        found = self._objects.list_mislabelled(key)
        if found and not await self._is_ours(key):
            return False
        await asyncio.gather(*(self._objects.label_object(key, *each) for each in found[:-1]))
        for each in found[-1:]:
            await self._objects.label_object(key, *each)
        return True
