"""A Deployment that the operator reads and did not make."""

from typing import Literal

from pydantic import Field

from paternoster_operator.api.types.fields import INT32, Document, SubdomainName


class TargetRef(Document):
    """A Deployment of the same namespace whose pods run the engine: the operator reads them, and changes nothing."""

    kind: Literal["Deployment"] = "Deployment"
    name: SubdomainName
    port: int = Field(default=8000, ge=1, le=65535, json_schema_extra=INT32)
    """Port of each pod at which its engine answers GET /metrics."""
