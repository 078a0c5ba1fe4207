"""Limits on the cost of one client of an HTTP server; docs/limits.md has the defaults."""

from typing import Annotated, Any

from pydantic import Field

from paternoster_contract.flags import Settings
from paternoster_contract.settings.row import OtherEngines, SpecField, refuse_rest

_SECONDS = Annotated[int, Field(ge=1, le=3600)]
_GATEWAYS_HAVE = OtherEngines(
    refuse_rest("vLLM's HTTP server has no such limit; gateways have their own"),
    refuse_rest("SGLang's HTTP server has no such limit; gateways have their own"),
)


def _make_field(name: str, description: str, annotation: Any = None) -> SpecField:
    return SpecField(f"engine.http.{name}", description, annotation)


# fmt: off
class HttpLimits(Settings):
    """Bounds of one listening port."""

    max_header_bytes: Annotated[int, _make_field("maxHeaderBytes", "Bytes of a request line and its headers."),
        _GATEWAYS_HAVE] = Field(
        default=32_768, ge=1024, le=2**20, description="bytes of a request line and its headers; beyond: 431")
    max_headers: Annotated[int, _make_field("maxHeaders", "Headers of a request."), _GATEWAYS_HAVE] = Field(
        default=100, ge=10, le=1000, description="headers of a request; beyond: 431")
    max_url_bytes: Annotated[int, _make_field("maxUrlBytes", "Bytes of a URL."), _GATEWAYS_HAVE] = Field(
        default=8192, ge=256, le=2**16, description="bytes of a URL; beyond: 414")
    max_body_bytes: Annotated[int, _make_field("maxBodyBytes", "Bytes of a request's body."), _GATEWAYS_HAVE] = Field(
        default=4 * 2**20, ge=1024, le=2**30, description="bytes of a request's body; beyond: 413")
    max_held_body_bytes: Annotated[int, _make_field("maxHeldBodyBytes",
               "Bytes of the bodies of all requests in progress at a port, and of answers that clients do not read."),
        _GATEWAYS_HAVE] = Field(
        default=128 * 2**20, ge=1024, le=2**40,
        description="bytes of the bodies of all requests in progress, unread answers and what is kept of streams, "
        "shared out by fleet and tenant; beyond: 503")
    header_timeout: Annotated[float,
        _make_field("headerTimeoutSeconds", "Time for the headers of a request.", _SECONDS),
        _GATEWAYS_HAVE] = Field(
        default=20, gt=0, le=3600,
        description="seconds from a connection's or a request's first byte to the end of its headers, and for a TLS "
        "handshake; beyond: 408")
    body_timeout: Annotated[float,
        _make_field("bodyTimeoutSeconds", "Time for the next 64 KiB of a body, or its rest.", _SECONDS),
        _GATEWAYS_HAVE] = Field(
        default=60, gt=0, le=3600, description="seconds for the next 64 KiB of a body, or its rest; beyond: 408")
    write_timeout: Annotated[float, _make_field("writeTimeoutSeconds",
               "Time in which a client must take the next 64 KiB of an answer, once no more can be sent.", _SECONDS),
        _GATEWAYS_HAVE] = Field(
        default=60, gt=0, le=3600,
        description="seconds in which a client must take the next 64 KiB of an answer while no more of it can be sent; "
        "beyond: the connection is closed and the request cancelled")
    keep_alive_timeout: Annotated[int,
        _make_field("keepAliveTimeoutSeconds", "Time between two requests on a connection."),
        _GATEWAYS_HAVE] = Field(
        default=75, ge=1, le=3600, description="seconds between two requests on a connection; beyond: it is closed")
    max_connections: Annotated[int, _make_field("maxConnections",
               "Connections of a port; no more than half of the file descriptors that a process may have."),
        _GATEWAYS_HAVE] = Field(
        default=4096, ge=16, le=2**20,
        description="connections of a port, and no more than half of the file descriptors; beyond: of the address with "
        "the most, the one that has waited longest for its client is closed, and none is accepted where none waits. "
        "15/16 of them may have a request in progress, shared out by fleet and tenant; beyond: 503")
    max_connections_per_address: Annotated[int, _make_field("maxConnectionsPerAddress",
               "Connections from one address; 0 for no limit. Engines behind the gateway see its pods alone."),
        _GATEWAYS_HAVE] = Field(
        default=0, ge=0, le=2**20,
        description="connections from one IPv4 address or one IPv6 /64; beyond: closed at once. 0 for no limit: behind "
        "a proxy all clients have the proxy's address")
