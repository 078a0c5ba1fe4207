"""Whether and where an engine publishes what its prefix cache holds: the fields of vLLM's ``--kv-events-config``."""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Endpoint = Annotated[str, Field(pattern=r"^(tcp|ipc)://\S+$")]


class KVEventsConfig(BaseModel):
    """One JSON object, as the flag has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enable_kv_cache_events: bool = False
    publisher: Literal["zmq", "null"] = "zmq"
    endpoint: Endpoint = "tcp://*:5557"
    """Bound where it has ``*`` or ``::`` or is ``ipc://``, otherwise connected to."""
    replay_endpoint: Endpoint | None = None
    """Bound; answers with the batches since a sequence number."""
    topic: Annotated[str, Field(max_length=256)] = ""
    buffer_steps: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Batches that can be replayed, with a replay endpoint."""
    hwm: Annotated[int, Field(ge=1, le=2**31 - 1)] = 100_000
    """Batches that wait for one subscriber; what is beyond them never reaches it."""
    max_queue_size: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Batches that wait for the publisher; what is beyond them is lost, and its sequence numbers are left out."""

    @model_validator(mode="after")
    def _check_endpoints(self) -> Self:
        if self.replay_endpoint == self.endpoint:
            raise ValueError(f"replay_endpoint is {self.replay_endpoint!r}: must differ from endpoint")
        return self

    def __str__(self) -> str:
        return self.model_dump_json(exclude_defaults=True)

    @property
    def publishes(self) -> bool:
        return self.enable_kv_cache_events and self.publisher == "zmq"


def _parse_json(value: Any) -> Any:
    """A flag's text as JSON; raises ``ValueError`` that names where it is not JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"must be a JSON object: {error}") from error


KVEventsSetting = Annotated[KVEventsConfig, BeforeValidator(_parse_json)]
