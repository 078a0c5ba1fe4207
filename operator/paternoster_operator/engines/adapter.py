"""What the operator needs of an engine, whichever it is: what it is started with, and how it is read and steered."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from pydantic import ValidationError

from paternoster_contract.admin import LiveConfig, LiveConfigPatch
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.stats import EngineState, EngineStats


class RuntimeType(StrEnum):
    """The engines that a fleet may run."""

    PATERNOSTER = "Paternoster"
    VLLM = "VLLM"
    SGLANG = "SGLang"
    OPENAI = "OpenAI"


class Actuator(StrEnum):
    """What moves the limits of engines."""

    ADMIN_API = "AdminAPI"
    PLUGIN = "Plugin"
    INTERNAL_STATE = "InternalState"
    GATEWAY = "Gateway"
    """Gateways send a replica no more requests at a time than its live cap."""
    NONE = "None"


class Continuation(StrEnum):
    """How the rest of a stream that an engine broke off is, which another one makes."""

    EXACT = "exact"
    """Equal tokens from equal numbers: what is drawn depends on seed and position alone."""
    VALID = "valid"
    """An answer to the request, though not the one that the first engine would have made."""
    NONE = "none"
    """There is none: the stream ends with an error event."""


VALUES_WITHOUT_LIMITS: Mapping[str, Any] = {
    "instance": "",
    "state": EngineState.READY,
    "started_at": 0,
    "last_tick_age_seconds": 0,
    "capacity": 1,
    "live_cap": 1,
    "kv_blocks_cached": 0,
    "kv_projected_peak": 0,
}
"""Fields of the stats of an engine that reports no limits, and nothing of its process but metrics."""


class StatsUnavailable(ValueError):
    """An engine's answers have no whole ``/stats``; the text names what is missing or wrong."""

    @classmethod
    def from_validation(cls, error: ValidationError) -> "StatsUnavailable":
        """The first fault; its text is bounded, since names and values may be the engine's."""
        first = error.errors(include_url=False, include_input=False)[0]
        return cls(f"{'.'.join(map(str, first['loc']))[:100]}: {first['msg'][:200]}".removeprefix(": "))


class LimitsUnavailable(StatsUnavailable):
    """An engine answers that it has no limits that a call moves; the text is its answer."""


@dataclass(frozen=True, slots=True)
class StatsRequest:
    """One GET of those that the stats are read from."""

    path: str
    longest: int
    """Bytes of an answer that is read."""
    needs_key: bool = False
    """Whether it has the fleet's admin key."""
    samples: frozenset[str] = frozenset()
    """Names of the samples that are kept of an exposition, while it is read; empty for an answer that is kept whole."""


@dataclass(frozen=True, slots=True)
class LimitsCall:
    """The request that sets an engine's limits; any answer but 200 means that they are as before."""

    method: str
    path: str
    body: dict[str, Any]
    check: Callable[[bytes], object] = LiveConfig.model_validate_json
    """Raises ``ValueError`` for an answer that is 200 and says that they are as before."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How an engine's process begins."""

    command: Sequence[str]
    args: Sequence[str]
    env: dict[str, str] = field(default_factory=dict)


class BoundPort(NamedTuple):
    """A port of this machine, bound before the process starts that is to listen on it."""

    number: int
    socket: int
    """Its descriptor."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A field that an engine cannot honour: any other value than ``allowed`` is refused at admission."""

    field: str
    """Below spec."""
    allowed: Any
    """The field's default, or a list of values one of which is; None where it must be unset."""
    reason: str


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do beyond serving."""

    live_cap: bool
    token_budget: bool
    queue_limit: bool
    """Whether its queue is bounded by time, live."""
    step_costs: bool
    """Whether it reports what its steps cost, from which the model of a replica is fitted."""
    drain: bool
    """Whether it can be drained without ending."""
    text_chains: bool
    """Whether it publishes to gateways which texts its prefix cache has."""
    continuation: Continuation
    not_continued: tuple[str, ...] = ()
    """Streams and answers that end with their engine although others go on."""


class EngineKind(Protocol):
    """What is fixed of an engine: how it is started, what it cannot honour, what it can do."""

    @property
    def type(self) -> RuntimeType: ...

    @property
    def actuator(self) -> Actuator:
        """What moves its limits."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def finishes_requests(self) -> bool:
        """Whether it finishes what runs after SIGTERM, within ``drain.timeoutSeconds`` or without a limit."""
        ...

    @property
    def health_path(self) -> str:
        """What gateways probe at a replica that is quiet: 5xx, or no answer, while it makes no progress."""
        ...

    @property
    def refusals(self) -> Sequence[Refusal]:
        """The fields that it cannot honour."""
        ...

    def launch(self, settings: EngineArgs, args: Sequence[str] = ()) -> Launch:
        """The process of an engine with ``settings``; ``args`` are further flags of its own."""
        ...

    @property
    def inherits_sockets(self) -> bool:
        """True where its process takes bound sockets over on this machine; else it binds the port itself."""
        ...

    def start_locally(self, launch: Launch, host: str, port: BoundPort, admin: BoundPort | None) -> Launch:
        """A container's ``launch`` as a process of this machine; ``admin`` is None where the container has none."""
        ...

    def find_owned_flags(self, args: Sequence[str]) -> list[str]:
        """What is wrong with ``args``: a line for each flag that a field of the resource, or the operator, sets."""
        ...


class EngineAdapter(Protocol):
    """How a running engine is read and steered."""

    @property
    def kind(self) -> EngineKind: ...

    @property
    def without_limits(self) -> "EngineAdapter | None":
        """How an engine of this kind is read whose limits no call moves; None where it has no numbers then."""
        ...

    @property
    def stats_requests(self) -> Sequence[StatsRequest]:
        """What :meth:`parse_stats` needs, in its order."""
        ...

    def parse_stats(self, answers: Sequence[bytes], now: float) -> EngineStats:
        """The stats in the answers to :attr:`stats_requests`; ``now`` in seconds since the epoch.

        Raises :class:`StatsUnavailable`.
        """
        ...

    def limits_call(self, limits: LiveConfigPatch) -> LimitsCall | None:
        """The call that sets those of ``limits`` that the engine has; None where it has none of them."""
        ...
