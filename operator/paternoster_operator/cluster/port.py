"""The port through which reconcile sees and changes a cluster.

Objects are plain Kubernetes documents (``dict``), read from a cache and written by server-side apply, so that one
reconcile runs against an API server and against this machine alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from paternoster_contract.cli.quoting import quote_line

LONGEST_NOTE = 1024
"""Characters of an event's note (events.k8s.io/v1)."""
Object = dict[str, Any]
"""A Kubernetes object as parsed JSON."""


class Key(NamedTuple):
    """Which object of a kind: most often, which LLMDeployment."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of an object's story, as ``kubectl describe`` shows it."""

    type: str
    """``Normal`` or ``Warning``."""
    reason: str
    message: str
    """Quoted, as engines and API servers have a part in it, and cut at :data:`LONGEST_NOTE`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", quote_line(self.message)[:LONGEST_NOTE])


class ClusterError(Exception):
    """A write or read that the cluster refused or did not answer.

    ``retriable`` is false when the same call would fail again, such as an invalid object. The API server asks for no
    other call within ``retry_after_seconds``.
    """

    def __init__(self, message: str, *, retriable: bool = True, retry_after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.retriable = retriable
        self.retry_after_seconds = retry_after_seconds

    @property
    def reason(self) -> str:
        """For a condition."""
        return "ClusterUnavailable" if self.retriable else "ClusterRefused"


class WatchFailed(ClusterError):
    """What is cached of a namespace is not whole, so that nothing can be decided by it."""

    reason = "WatchFailed"


class NamespaceEnding(ClusterError):
    """The namespace is being deleted, or is gone: what is in it goes, too, and nothing can be made there."""


class FleetHandedOver(ClusterError):
    """The fleet is another operator's now, so that this one may not change it."""

    def __init__(self, key: Key) -> None:
        super().__init__(f"{key}: not changed: this operator may not act for it any more")


class ForeignObject(ClusterError):
    """Objects of children's names are there and belong to another owner; they are left alone."""

    reason = "ChildNotOwned"

    def __init__(self, objects: Sequence[str], owner: str) -> None:
        """``objects``: what is there and who controls it; ``owner``: whose children have these names."""
        self.objects, self.owner = tuple(objects), owner
        one = len(objects) == 1
        super().__init__(
            f"{' and '.join(objects)} {'is' if one else 'are'} there already: delete or rename "
            f"{'it' if one else 'them'}, or rename {owner}",
            retriable=False,
        )


@dataclass(frozen=True, slots=True)
class TargetObjects:
    """A Deployment that the operator did not make, and its pods."""

    deployment: Mapping[str, Any]
    pods: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class WatchFault:
    """Why what is cached of a namespace may be out of date."""

    message: str
    listed: bool
    """Whether the cache was whole before."""


class Cluster(Protocol):
    """Reads come from the adapter's cache and never block; writes raise :class:`ClusterError`."""

    def find_watch_fault(self, namespace: str) -> WatchFault | None:
        """Why the cache of ``namespace`` may be out of date; None while it is not."""
        ...

    def list(self) -> Sequence[Key]:
        """Every LLMDeployment there is."""
        ...

    def get(self, key: Key) -> Mapping[str, Any] | None:
        """The LLMDeployment, or None when it is gone."""
        ...

    def get_child(self, key: Key, kind: str) -> Mapping[str, Any] | None:
        """The object of ``kind`` that the LLMDeployment controls, with its status; None too for Secrets."""
        ...

    def list_pods(self, key: Key) -> Sequence[Mapping[str, Any]]:
        """The pods that the LLMDeployment's Deployment made, those being deleted included."""
        ...

    async def read_target(self, key: Key) -> TargetObjects | None:
        """The Deployment of that name, of any owner or none, with the pods that it made; None when there is none.

        No watch has it: each call asks the cluster.
        """
        ...

    async def read_secret(self, key: Key) -> Mapping[str, str] | None:
        """What the Secret of that name holds, decoded; None when there is none."""
        ...

    async def create_secret(self, key: Key, data: Mapping[str, str]) -> None:
        """Create a Secret that has no owner; one that is there already stays as it is."""
        ...

    async def apply(self, obj: Object) -> Mapping[str, Any] | None:
        """Create or update one child: server-side apply with the operator's field manager, forced.

        Returns the object as it is now, or None where it could not stay because its owner is gone. Raises
        :class:`ForeignObject` where an object of that kind and name is controlled by another owner, or by none.
        """
        ...

    async def adopt_foreign_fields(self, there: Mapping[str, Any]) -> bool:
        """Become the manager of the fields of a child that others set; the next :meth:`apply` removes them.

        False where it is not as ``there`` any more.
        """
        ...

    async def check_owner(self, obj: Object) -> Mapping[str, Any] | None:
        """Return the object of that kind and name that is there, None if there is none.

        Raises :class:`ForeignObject` as :meth:`apply` does.
        """
        ...

    async def remove_child(self, like: Object) -> bool:
        """Delete the object of the kind and name of ``like`` if its controller controls it, too.

        Returns whether there was one. Raises :class:`ClusterError`.
        """
        ...

    async def annotate_pod(self, key: Key, pod: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of one engine pod of ``key``, or remove those that are None.

        One that is gone already is no error.
        """
        ...

    async def write_status(self, key: Key, status: Object) -> None:
        """Replace the LLMDeployment's status subresource."""
        ...

    async def amend_status(self, key: Key, fields: Object) -> bool:
        """Set ``fields`` of the LLMDeployment's status; False where it is not as the cache has it any more."""
        ...

    async def list_events(self, namespace: str, kind: str, name: str) -> Sequence[Mapping[str, Any]]:
        """Events about one object, as of ``events.k8s.io/v1``; a bounded number of them."""
        ...

    async def record_event(self, key: Key, event: Event) -> None:
        """Record what happened to the LLMDeployment; an event that the cluster does not take is only logged."""
        ...


def check_listed(cluster: Cluster, namespace: str) -> None:
    """Raise :class:`WatchFailed` where the cache of ``namespace`` was never whole."""
    fault = cluster.find_watch_fault(namespace)
    if fault is not None and not fault.listed:
        raise WatchFailed(fault.message)
