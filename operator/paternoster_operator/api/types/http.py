"""What one client of an engine's HTTP ports may cost; no logic. The same limits as in ``paternoster_contract``."""

from typing import Any

from pydantic import Field

from paternoster_operator.api.types.fields import INT32, Document


class HttpLimits(Document):
    """Limits of each of an engine's ports: bytes, seconds and connections of one client."""

    max_header_bytes: int = Field(default=32_768, ge=1024, le=2**20, json_schema_extra=INT32)
    """Bytes of a request line and its headers."""
    max_headers: int = Field(default=100, ge=10, le=1000, json_schema_extra=INT32)
    """Headers of a request."""
    max_url_bytes: int = Field(default=8192, ge=256, le=2**16, json_schema_extra=INT32)
    """Bytes of a URL."""
    max_body_bytes: int = Field(default=4 * 2**20, ge=1024, le=2**30, json_schema_extra=INT32)
    """Bytes of a request's body."""
    max_held_body_bytes: int = Field(default=128 * 2**20, ge=1024, le=2**40, json_schema_extra={"format": "int64"})
    """Bytes of the bodies of all requests in progress at a port, and of answers that clients do not read."""
    header_timeout_seconds: int = Field(default=20, ge=1, le=3600, json_schema_extra=INT32)
    """Time for the headers of a request."""
    body_timeout_seconds: int = Field(default=60, ge=1, le=3600, json_schema_extra=INT32)
    """Time for the next 64 KiB of a body, or its rest."""
    write_timeout_seconds: int = Field(default=60, ge=1, le=3600, json_schema_extra=INT32)
    """Time in which a client must take the next 64 KiB of an answer, once no more can be sent."""
    keep_alive_timeout_seconds: int = Field(default=75, ge=1, le=3600, json_schema_extra=INT32)
    """Time between two requests on a connection."""
    max_connections: int = Field(default=4096, ge=16, le=2**20, json_schema_extra=INT32)
    """Connections of a port; no more than half of the file descriptors that a process may have."""
    max_connections_per_address: int = Field(default=0, ge=0, le=2**20, json_schema_extra=INT32)
    """Connections from one address; 0 for no limit. Engines behind the gateway see its pods alone."""

    def to_settings(self) -> dict[str, Any]:
        """As the engine names them."""
        return {name.removesuffix("_seconds"): value for name, value in self.model_dump().items()}
