"""What the types of the resource are made of: numbers with bounds, quantities, and documents in camelCase."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from paternoster_contract.quantity import QUANTITY

_ECHO = 60
INT32: JsonDict = {"format": "int32"}
INT64: JsonDict = {"format": "int64"}
DATE_TIME: JsonDict = {"format": "date-time"}
Count = Annotated[int, Field(ge=0, le=2**31 - 1, json_schema_extra=INT32)]
Positive = Annotated[int, Field(ge=1, le=2**31 - 1, json_schema_extra=INT32)]
Seconds = Annotated[int, Field(ge=0, le=86_400, json_schema_extra=INT32)]
SubdomainName = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")]
"""Name of another object (RFC 1123 subdomain)."""
ServedName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._/:-]{1,128}$")]
"""Name of a model that clients use, such as org/name or name:tag."""
Quantity = Annotated[
    str,
    Field(pattern=QUANTITY, max_length=32),
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": QUANTITY, "maxLength": 32}),
]
"""A Kubernetes resource quantity, such as 500m, 2 or 512Mi."""


_BYTES = r"^[1-9][0-9]*(k|M|G|T|Ki|Mi|Gi|Ti)?$"
Bytes = Annotated[
    str,
    Field(pattern=_BYTES, max_length=32),
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": _BYTES, "maxLength": 32}),
]
"""A quantity of at least one byte, such as 512Mi."""


class ImagePullPolicy(StrEnum):
    """When a node asks a registry for an image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class Document(BaseModel):
    """A part of the resource: camelCase on the wire, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", use_attribute_docstrings=True
    )


def show_value(value: Any) -> str:
    """A value as errors tell it, shortened."""
    text = repr(value)
    return text if len(text) <= _ECHO else text[: _ECHO - 3] + "..."
