"""The routing table: what the operator publishes and the gateway follows.

The gateway keeps the last table it saw, so requests flow on while the operator is away.
"""

from functools import cached_property

from pydantic import BaseModel, Field
from pydantic.dataclasses import dataclass

from paternoster_contract.access.identity import Identity, of_plain_key
from paternoster_contract.default_parameters import DefaultParameters
from paternoster_contract.http import paths
from paternoster_contract.limits import MAX_ADAPTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One engine that may be sent requests.

    A dataclass with slots, as a table has tens of thousands: of a model, a collection of garbage visits four objects.
    """

    name: str = Field(description="pod name, unique in its namespace alone")
    url: str = Field(description="base URL without a trailing slash, such as http://10.0.0.7:8000; unique in the table")
    ready: bool = Field(description="false: known, but send it nothing new")
    draining: bool = Field(
        default=False, description="true: its pod is to end; with hand_over its streams go on at other replicas"
    )
    upstream_model: str = Field(
        default="", max_length=2048, description="the model's name at its engine; empty where that has the served names"
    )
    unserved_names: tuple[str, ...] = Field(
        default=(), description="names of the model that its engine does not serve: it was started without them "
        "during a rollout, or has not loaded the adapter"
    )  # fmt: skip


class AdapterRoute(BaseModel):
    """An adapter (LoRA) of a served model, and a model of its own to clients."""

    name: str
    key_digests: list[str] | None = Field(
        default=None, description="digests of the model's keys that may use it; None: all of them"
    )


class ModelRoute(BaseModel):
    """Where requests for one served model go."""

    fleet: str = Field(default="", description="uid of the LLMDeployment: the keys of its engines are made from it")
    namespace: str = Field(
        default="",
        description="of the LLMDeployment: what all fleets use is shared out by it; empty where there is none",
    )
    aliases: list[str] = Field(default_factory=list, description="further names that clients may use for the model")
    adapters: list[AdapterRoute] = Field(
        default_factory=list, max_length=MAX_ADAPTERS, description="adapters (LoRA) of the model: a replica that lacks "
        "one has it among its unserved_names",
    )  # fmt: skip
    key_digests: list[str] | None = Field(
        default=None, description="SHA-256 of each key that clients may send, in hex; None: clients need no key"
    )
    identities: dict[str, Identity] = Field(
        default_factory=dict, description="who sends a key, by its digest; a key without one is a tenant of its own"
    )
    replicas: list[Replica] = Field(default_factory=list)
    max_model_len: int | None = Field(
        default=None, ge=1, description="longest prompt plus output in tokens, as its engines have told; None: not yet"
    )
    default_parameters: DefaultParameters | None = Field(
        default=None, description="sampling settings of requests that leave them out, as its engines report them"
    )
    created: int | None = Field(
        default=None, ge=0, description="when the LLMDeployment was made, in Unix seconds; None: not known"
    )
    max_held: int = Field(default=256, ge=0, description="requests the gateway may hold while no replica is ready")
    hold_timeout_seconds: float = Field(default=120, ge=0, description="after this a held request is answered 503")
    hold: bool = Field(default=True, description="false: where no replica is ready, answer 503 at once")
    hand_over: bool = Field(
        default=False, description="whether streams of a replica that drains go on at others, where these can"
    )
    retry_after_seconds: float = Field(
        default=5, ge=0, description="when a refused request may find a replica: Retry-After, and how long it is demand"
    )
    health_path: str = Field(
        default=paths.HEALTH,
        max_length=128,
        pattern=r"^/[A-Za-z0-9._~/-]*$",
        description="what a gateway probes at its replicas; one that answers 404 has /health",
    )
    max_in_flight: int | None = Field(
        default=None,
        ge=1,
        description="requests that a replica gets at a time from all gateways, where these hold the cap of its engine; "
        "None: no bound",
    )
    in_flight_parts: dict[str, int] = Field(
        default_factory=dict,
        description="each gateway's part of max_in_flight, by its instance; one that is not named has a part of 1, and "
        "all of it where none is named",
    )

    spare_in_flight: int = Field(
        default=0,
        ge=0,
        description="requests beyond its part of max_in_flight that each gateway may send a replica, of senders that "
        "have less than an equal part of what is in flight",
    )

    @property
    def names(self) -> tuple[str, ...]:
        """All that clients may use beside the model's first name."""
        return *self.aliases, *(adapter.name for adapter in self.adapters)

    def find_adapter(self, name: str) -> AdapterRoute | None:
        """The adapter that clients call by ``name``; None for a name of the model itself."""
        return next((adapter for adapter in self.adapters if adapter.name == name), None)

    def most_in_flight(self, gateway: str) -> int | None:
        """The requests that the gateway with the instance ``gateway`` may have in flight at a replica."""
        if self.max_in_flight is None:
            return None
        return self.in_flight_parts.get(gateway, 1) if self.in_flight_parts else self.max_in_flight

    def find_identity(self, key_digest: str) -> Identity | None:
        """Who sends the key with this digest, one of those that clients may send; None where they need none."""
        if self.key_digests is None:
            return None
        return self.identities.get(key_digest) or of_plain_key(key_digest)


class RoutingTable(BaseModel):
    """All served models by the first of their names."""

    models: dict[str, ModelRoute] = Field(default_factory=dict)
    unread: list[str] = Field(
        default_factory=list,
        description="served names whose row could not be built just now: a gateway keeps the row that it has; one "
        "that comes nevertheless is an old one, for gateways that have none",
    )

    def completed_from(self, before: "RoutingTable") -> "RoutingTable":
        """With the rows of ``before`` for the names that are :attr:`unread`: rows that came for these may be older."""
        kept_rows = {name: before.models[name] for name in self.unread if name in before.models}
        if not kept_rows:
            return self
        return RoutingTable.model_construct(models={**self.models, **kept_rows}, unread=self.unread)

    @cached_property
    def first_names(self) -> dict[str, str]:
        """The model's first name, which ``models`` has, by each name that clients may use."""
        further = {further: name for name, route in self.models.items() for further in route.names}
        return {**further, **{name: name for name in self.models}}

    @cached_property
    def names_by_fleet(self) -> dict[str, list[str]]:
        """First names of the models by the uid of their LLMDeployment."""
        found: dict[str, list[str]] = {}
        for name, route in self.models.items():
            found.setdefault(route.fleet, []).append(name)
        return found

    @cached_property
    def all_key_digests(self) -> frozenset[str] | None:
        """Digests of every key that opens any model; None where a model needs none, or has no row that lists them.

        An unread name may have a row: the one by which its requests are admitted.
        """
        if not self.models or any(name not in self.first_names for name in self.unread):
            return None
        digests: set[str] = set()
        for route in self.models.values():
            if route.key_digests is None:
                return None
            digests.update(route.key_digests)
        return frozenset(digests)

    def health_path(self, url: str) -> str:
        """What to probe at the replica at ``url``."""
        return self._health_paths.get(url, paths.HEALTH)

    def has_replica(self, url: str) -> bool:
        """Whether any model has a replica at ``url``."""
        return url in self._health_paths

    @cached_property
    def _health_paths(self) -> dict[str, str]:
        """Path to probe, by the URL of each replica; of two models with one replica, that of the first."""
        routes = reversed(self.models.values())
        return {replica.url: route.health_path for route in routes for replica in route.replicas}
