"""The routing table in rows: one line of JSON a served model, so that a change costs a gateway that row alone.

A gateway asks for :data:`CONTENT_TYPE` and parses the lines that it has not seen. The last line says that all came.
"""

from pydantic import BaseModel, Field

from paternoster_contract.routing import ModelRoute

CONTENT_TYPE = "application/x-ndjson"
MOST_BYTES = 16 * 2**20
"""Limit for all rows together: the operator shares them out by namespace, and a gateway reads no more."""


class Row(BaseModel):
    """One served model."""

    name: str
    route: ModelRoute

    def encode(self) -> bytes:
        """The line, with its end."""
        return self.model_dump_json().encode() + b"\n"


class End(BaseModel):
    """The last line."""

    rows: int = Field(ge=0, description="how many lines came before")
    unread: list[str] = Field(
        default_factory=list,
        description="served names whose row could not be built just now: a gateway keeps the row that it has; one "
        "that comes nevertheless is an old one, for gateways that have none",
    )
    left_out: list[str] = Field(
        default_factory=list,
        description="from one operator to another: served names whose row is beyond their namespace's share",
    )

    def encode(self) -> bytes:
        """The line, with its end."""
        return self.model_dump_json().encode() + b"\n"
