"""Schemas as pydantic writes them for fields of many types, to validate and to serialise."""

import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import pathlib
import re
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticInvalidForJsonSchema
from typing_extensions import TypedDict

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Point(NamedTuple):
    x: int
    label: str = "origin"


class Movie(TypedDict):
    name: str
    year: int


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Add(BaseModel):
    kind: Literal["add"] = "add"
    left: "Expression"
    right: "Expression"


class Constant(BaseModel):
    kind: Literal["literal"] = "literal"
    value: int


Expression = Annotated[Add | Constant, Field(discriminator="kind")]


class Node(BaseModel):
    value: int
    next: "Node | None" = None


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int
    __pydantic_extra__: dict[str, int]


class Box(BaseModel, Generic[T]):
    item: T


class Square(BaseModel):
    side: float

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> float:
        return self.side * self.side


@dataclasses.dataclass
class Record:
    a: int
    b: list[str] = dataclasses.field(default_factory=list)


TYPES: dict[str, Any] = {
    "str": str, "int": int, "float": float, "bool": bool, "None": None, "bytes": bytes, "Decimal": decimal.Decimal,
    "Decimal with bounds": Annotated[decimal.Decimal, Field(ge=0, max_digits=6, decimal_places=2)],
    "Fraction": fractions.Fraction, "complex": complex, "datetime": datetime.datetime, "date": datetime.date,
    "time": datetime.time, "timedelta": datetime.timedelta, "Path": pathlib.Path, "FilePath": pydantic.FilePath,
    "DirectoryPath": pydantic.DirectoryPath, "UUID": uuid.UUID, "UUID1": pydantic.UUID1, "UUID3": pydantic.UUID3,
    "UUID4": pydantic.UUID4, "UUID5": pydantic.UUID5, "UUID7": pydantic.UUID7, "AnyUrl": pydantic.AnyUrl,
    "HttpUrl": pydantic.HttpUrl, "PostgresDsn": pydantic.PostgresDsn, "IPv4Address": ipaddress.IPv4Address,
    "IPv6Address": ipaddress.IPv6Address, "IPv4Network": ipaddress.IPv4Network, "IPv6Network": ipaddress.IPv6Network,
    "IPv4Interface": ipaddress.IPv4Interface, "IPv6Interface": ipaddress.IPv6Interface,
    "IPvAnyAddress": pydantic.IPvAnyAddress, "IPvAnyNetwork": pydantic.IPvAnyNetwork,
    "IPvAnyInterface": pydantic.IPvAnyInterface, "SecretStr": pydantic.SecretStr, "SecretBytes": pydantic.SecretBytes,
    "Json": pydantic.Json, "Json[list[int]]": pydantic.Json[list[int]], "Base64Str": pydantic.Base64Str,
    "Base64UrlStr": pydantic.Base64UrlStr, "Pattern": re.Pattern, "ByteSize": pydantic.ByteSize, "Enum": Color,
    "IntEnum": Number, "Literal": Literal["a", 1, None, True], "set[str]": set[str], "frozenset[int]": frozenset[int],
    "list[int]": list[int], "list": list, "tuple[int, str]": tuple[int, str], "tuple[()]": tuple[()],
    "Sequence": Sequence[str], "list of one or two": Annotated[list[int], Field(min_length=1, max_length=2)],
    "dict": dict, "dict[str, int]": dict[str, int], "dict[UUID, int]": dict[uuid.UUID, int],
    "dict[date, int]": dict[datetime.date, int], "dict[Literal, int]": dict[Literal["a", "b"], int],
    "dict[Enum, int]": dict[Color, int], "dict[bytes, int]": dict[bytes, int],
    "dict of a pattern": dict[Annotated[str, Field(pattern="^x")], int],
    "dict of short names": dict[Annotated[str, Field(min_length=1, max_length=4)], int],
    "dict of one or two": Annotated[dict[str, int], Field(min_length=1, max_length=2)],
    "optional": int | None, "union": int | float | str | None, "NamedTuple": Point, "TypedDict": Movie, "model": Cat,
    "tagged union": Annotated[Cat | Dog, Field(discriminator="kind")], "recursive tagged union": Expression,
    "recursive": Node, "closed": Closed, "open": Open, "generic": Box[list[int]], "computed": Square,
    "dataclass": Record, "pattern": Annotated[str, Field(pattern=r"^[A-Z]{3}\d+$")],
    "word": Annotated[str, Field(pattern=r"\bfoo\b")], "bounds": Annotated[int, Field(gt=0, lt=10, multiple_of=2)],
    "Any": Any, "JsonValue": pydantic.JsonValue, "ImportString": pydantic.ImportString,
}  # fmt: skip


def schemas() -> dict[str, dict[str, Any]]:
    """Schemas by the name of the type; one where both modes give the same."""
    made: dict[str, dict[str, Any]] = {}
    for name, kind in TYPES.items():
        model = create_model("Model", a=(kind, ...))
        made[name] = model.model_json_schema(mode="validation")
        try:
            serialized = model.model_json_schema(mode="serialization")
        except PydanticInvalidForJsonSchema:
            continue
        if serialized != made[name]:
            made[f"{name}, serialised"] = serialized
    return made
