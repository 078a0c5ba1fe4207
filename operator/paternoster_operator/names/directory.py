"""Every LLMDeployment as it was last usable, and which served name each has."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.api.stored import with_successors
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.port import Cluster, Key
from paternoster_operator.names import served_names
from paternoster_operator.names.served_names import Claim, Ownership
from paternoster_operator.settings import Names

FRESH_SECONDS = 1.0
"""Who has which name is found anew after this long, where no caller needs it at once: every fleet is read."""


class Directory:
    """Reads the cluster's cache; the same on every operator that sees the same."""

    def __init__(
        self,
        cluster: Cluster,
        names: Names,
        other_owner: Callable[[Mapping[str, Any]], str | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Index the fleets of ``cluster`` by their served names.

        ``other_owner``: the other installation that reconciles a document; :meth:`list_served` leaves its fleets out.
        """
        self._cluster = cluster
        self._names = names
        self._other_owner = other_owner
        self._clock = clock
        self._resources: dict[Key, tuple[str | None, LLMDeployment | None]] = {}
        """As parsed last, with the version that was parsed."""
        self._owned = Ownership()
        self._claims: dict[Key, Claim] = {}
        """That ``_owned`` was found from."""
        self._found_at = float("-inf")

    def read(self, document: Mapping[str, Any], parsed: LLMDeployment | None = None) -> LLMDeployment:
        """The typed resource, its served name as this installation makes it; raises :class:`InvalidManifest`."""
        document = with_successors(document)
        return parse_resource(document if self._names is Names.GLOBAL else _with_name(document), parsed=parsed)

    def get_resource(self, key: Key) -> LLMDeployment | None:
        """As it was last usable: a broken edit takes no route away."""
        document = self._cluster.get(key)
        if document is None:
            self._resources.pop(key, None)
            return None
        version = document["metadata"].get("resourceVersion")
        cached = self._resources.get(key)
        if cached is None or cached[0] != version or version is None:
            before = None if cached is None else cached[1]
            try:
                cached = version, self.read(document, before)
            except InvalidManifest:
                cached = version, before
            self._resources[key] = cached
        return cached[1]

    def list_served(self) -> list[tuple[tuple[str, ...], LLMDeployment]]:
        """The fleets that have served names, with these, as of now."""
        resources = {key: resource for key in self._cluster.list() if (resource := self._find_own(key)) is not None}
        self._claims = {key: Claim.from_resource(resource) for key, resource in resources.items()}
        self._owned = served_names.assign_names(self._claims.values(), self._names)
        self._found_at = self._clock()
        return [(names, resources[key]) for key, names in self._owned.names.items()]

    def _find_own(self, key: Key) -> LLMDeployment | None:
        document = self._cluster.get(key)
        if document is None or self._other_owner(document) is not None:
            return None
        resource = self.get_resource(key)
        return None if resource is None or self._has_no_pods(key, resource) else resource

    def _has_no_pods(self, key: Key, resource: LLMDeployment) -> bool:
        """Whether it only observes pods that the operator did not make."""
        return resource.spec.target_ref is not None and self._cluster.get_child(key, "Deployment") is None

    def served_names(self, resource: LLMDeployment) -> tuple[tuple[str, ...], tuple[str, str] | None]:
        """The names that the fleet has, and why they are not those it wants (reason, message).

        One that is only observed wants none.
        """
        claim = Claim.from_resource(resource)
        if self._has_no_pods(claim.key, resource):
            return (), None
        indexed = self._claims.get(claim.key)
        if self._clock() - self._found_at > FRESH_SECONDS or indexed is None or indexed.wanted != claim.wanted:
            self.list_served()
        has = self._owned.names.get(claim.key, ())
        return has, served_names.explain_refusal(claim, self._owned, self._names)


def _with_name(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """With its namespace and own name for a served name, where it has none."""
    metadata, spec = document.get("metadata"), document.get("spec")
    model = spec.get("model") if isinstance(spec, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping) or not isinstance(model, Mapping):
        return document
    name = f"{metadata.get('namespace', 'default')}/{metadata.get('name')}"
    return {**document, "spec": {**spec, "model": {"servedName": name, **model}}}
