"""A copy of the routing table that outlives operators: the leading one writes it into a Secret that gateways mount.

A gateway that starts while no operator is there serves from it. It is a Secret because the table has digests of keys.
"""

import gzip
import zlib

from pydantic import BaseModel, Field, ValidationError

from paternoster_contract.routing import RoutingTable

FIELD = "routes.json.gz"
"""Field of the Secret, and name of the file in its volume."""
MOST_BYTES = 1_000_000
"""Packed: a Secret has room for 1 MiB."""
MOST_UNPACKED_BYTES = 16 * 2**20
"""As long as the longest table that a gateway takes from an operator."""
CONFIRM_SECONDS = 60.0
"""The operator writes the same table again after this, so that its age says how long no operator was there."""


class RoutingCopy(BaseModel):
    """The table, and when it was true."""

    written_at: float = Field(ge=0, le=1e12, allow_inf_nan=False, description="Unix seconds")
    table: RoutingTable

    def pack(self) -> bytes:
        """Its JSON, compressed; raises ``ValueError`` where that is longer than :data:`MOST_BYTES`."""
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
        """The opposite of :meth:`pack`; raises ``ValueError`` for anything else."""
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
            raise ValueError(f"the copy of the routing table is none: {error}") from error
