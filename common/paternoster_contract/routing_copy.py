"""A copy of the routing table in a Secret: the leading operator writes it, and gateways mount it.

A gateway that starts while no operator answers serves from the copy. It is a Secret because the table contains digests
of keys.
"""

import gzip
import zlib

from pydantic import BaseModel, Field, ValidationError

from paternoster_contract.routing import RoutingTable

FIELD = "routes.json.gz"
"""Field of the Secret, and name of the file in its volume."""
MOST_BYTES = 1_000_000
"""Most bytes of the compressed copy; a Secret holds 1 MiB."""
MOST_UNPACKED_BYTES = 16 * 2**20
"""Most bytes of the uncompressed copy, as of a table that a gateway reads from an operator."""
CONFIRM_SECONDS = 60.0
"""Time after which the operator writes an unchanged table again, so that its age shows how long no operator ran."""


class RoutingCopy(BaseModel):
    """The table, and the time at which it was current."""

    written_at: float = Field(ge=0, le=1e12, allow_inf_nan=False, description="Unix seconds")
    table: RoutingTable

    def pack(self) -> bytes:
        """Compress the JSON; raises ``ValueError`` above :data:`MOST_BYTES` or :data:`MOST_UNPACKED_BYTES`."""
        text = self.model_dump_json().encode()
        packed = gzip.compress(text, mtime=0)
        if len(packed) > MOST_BYTES or len(text) > MOST_UNPACKED_BYTES:
            raise ValueError(
                f"the routing table has {len(text)} bytes, {len(packed)} compressed: no copy of it can be kept beyond "
                f"{MOST_UNPACKED_BYTES} and {MOST_BYTES}"
            )
        return packed

    @classmethod
    def unpack(cls, packed: bytes) -> "RoutingCopy":
        """Read the result of :meth:`pack`; raises ``ValueError`` for anything else."""
        try:
            unpacking = zlib.decompressobj(wbits=31)
            text = unpacking.decompress(packed, MOST_UNPACKED_BYTES)
        except zlib.error as error:
            raise ValueError(f"the copy of the routing table is not gzip: {error}") from error
        if not unpacking.eof:
            raise ValueError(f"the copy of the routing table is cut off, or longer than {MOST_UNPACKED_BYTES} bytes")
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ValueError(f"the copy of the routing table is invalid: {error}") from error
