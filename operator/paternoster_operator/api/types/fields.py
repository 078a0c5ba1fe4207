"""What the types of the resource are made of: numbers with bounds, quantities, and documents in camelCase."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

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
