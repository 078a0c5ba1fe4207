"""Limits on the cost of one stream of Envoy's, and of all together; docs/limits.md has the defaults."""

from pydantic import Field

from paternoster_contract.flags import Settings
from paternoster_contract.settings.http_limits import HttpLimits

_HTTP = HttpLimits.model_fields


class PickerLimits(Settings):
    """Bounds of the streams of a picker, each of which has one HTTP request."""

    max_header_bytes: int = Field(
        default=_HTTP["max_header_bytes"].default,
        ge=1024,
        le=2**20,
        description="bytes of a request's headers; beyond: 431",
    )
    max_body_bytes: int = Field(
        default=_HTTP["max_body_bytes"].default, ge=1024, le=2**30, description="bytes of a request's body; beyond: 413"
    )
    max_held_body_bytes: int = Field(
        default=_HTTP["max_held_body_bytes"].default,
        ge=1024,
        le=2**40,
        description="bytes of the bodies of all requests that wait for a replica, shared out by fleet and tenant; "
        "beyond: 503",
    )
    body_timeout: float = Field(
        default=_HTTP["body_timeout"].default,
        gt=0,
        le=3600,
        description="seconds from a request's headers to the end of its body; beyond: 408",
    )
    max_streams: int = Field(
        default=4096,
        ge=1,
        le=2**20,
        description="streams at a time, shared out by fleet and tenant, and twice as many that are answered at once; "
        "beyond: 503",
    )
    stream_timeout: float = Field(
        default=3600,
        gt=0,
        le=86_400,
        description="seconds from a request's headers to the end of its answer; beyond: its stream is closed, and its "
        "replica's place is another's",
    )
