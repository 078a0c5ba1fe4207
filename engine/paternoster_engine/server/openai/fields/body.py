"""What the fields of a request body may be: features that are refused, and values that come in several forms."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PlainValidator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError
from pydantic_core.core_schema import no_info_after_validator_function

from paternoster_engine.server.bodies.reading_shares import charge_reading
from paternoster_engine.server.openai.fields.counts import collect_counts, count_object, within_body

MAX_PROMPTS = 128
MAX_MESSAGES = 2048
"""Messages of a conversation, and parts of a message's content; OpenAI's limit of messages."""
MAX_CHOICES = 128
"""OpenAI's limit of ``n``."""
MAX_LOGPROBS = 20
"""OpenAI's limit of ``top_logprobs``."""
UNSERVED = "x-unserved"
"""In the OpenAPI document: the field is known, and refused where it asks for something."""
MAX_BIASES = 300
"""OpenAI's limit of ``logit_bias``."""
MAX_STOPS = 16
"""Stop strings."""
MAX_DIGITS = 19
"""Digits of a token id in a name."""
MAX_IGNORED = 16
"""Most names of ignored fields in the header of one answer."""
MAX_NAME = 64
"""Characters of each."""


# Not equal by value: 1 == True, and typing takes equal annotations for one.
@dataclass(frozen=True, eq=False)
class AllowedValues:
    """Marks a field of a feature that the engine does not have: just the values that do not ask for it."""

    allowed: tuple[Any, ...]

    def check_value(self, value: Any) -> Any:
        if not any(type(value) is type(other) and value == other for other in self.allowed):
            text = " or ".join(json.dumps(other) for other in (*self.allowed, None))
            raise ValueError(f"not supported by this engine: leave it out or send {text}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self.check_value, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"enum": [*self.allowed, None], UNSERVED: True}


def allow_only(*allowed: Any) -> AllowedValues:
    return AllowedValues(allowed)


@dataclass(frozen=True, eq=False)
class Hint:
    """Marks a field whose other values are read as the first of ``served``, and reported as ignored.

    For what an answer may do without: a store, another way to bill, tokens that are cut from long prompts. Such a field
    is no ``Literal``: vendors add values with each release.
    """

    served: tuple[Any, ...]

    def is_served(self, value: Any) -> bool:
        return any(type(value) is type(other) and value == other for other in self.served)


def accept_hint(*served: Any) -> Hint:
    return Hint(served)


def whole_characters(text: str) -> str:
    """Raises ``ValueError`` for a lone surrogate, which JSON can spell and no encoding of text has."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        lone = text[error.start]
        raise ValueError(f"has the lone surrogate {lone!r} at {error.start}: send whole characters") from error
    return text


Text = Annotated[str, AfterValidator(whole_characters)]


def texts_or_ids(most: int) -> Any:
    """A text, a list of token ids, or a list of up to ``most`` of either, made into one form: the last."""

    def check_value(value: Any) -> list[str | list[int]]:
        one = isinstance(value, str) or (isinstance(value, list) and int in map(type, value))
        texts = [value] if one else value
        if not isinstance(texts, list) or not 1 <= len(texts) <= most:
            count = f", not {len(texts)}" if isinstance(texts, list) else ""
            raise ValueError(f"must be a text, a list of token ids, or a list of 1 to {most} of either{count}")
        for text in texts:
            ids = isinstance(text, list) and set(map(type, text)) <= {int} and min(text, default=0) >= 0
            if not text or not (isinstance(text, str) or ids):
                raise ValueError("each must be a text or a list of token ids, and not empty")
            if isinstance(text, str):
                whole_characters(text)
        return texts

    return PlainValidator(check_value, json_schema_input_type=str | list[str] | list[int] | list[list[int]])


def text_or_list(item: Any, most: int, as_list: Callable[[str], list[Any]] = lambda text: [text]) -> BeforeValidator:
    """For a list whose items are of type ``item``, for which a text may stand: ``as_list`` makes the list of it.

    More than ``most`` items are refused before the first is read; ``max_length`` outside of this is for the OpenAPI
    document.
    """

    def check_value(value: Any) -> Any:
        if isinstance(value, str):
            return as_list(value)
        if not isinstance(value, list):
            raise ValueError("must be a text or a list")
        if len(value) > most:
            sizes = {"field_type": "List", "max_length": most, "actual_length": len(value)}
            raise PydanticKnownError("too_long", sizes)
        return value

    return BeforeValidator(check_value, json_schema_input_type=str | list[item])


Prompts = Annotated[list[str | list[int]], texts_or_ids(MAX_PROMPTS)]
StopStrings = Annotated[
    list[Annotated[Text, Field(min_length=1)]], text_or_list(str, MAX_STOPS), Field(max_length=MAX_STOPS)
]
TokenIds = list[Annotated[int, Field(ge=0)]]


def _token_keys(value: Any) -> Any:
    """An object whose names are token ids, as JSON has no other, with ids in their place; they may be there already."""
    if not isinstance(value, dict) or len(value) > MAX_BIASES:
        return value
    for name in map(str, value):
        if not (name.isascii() and name.isdigit() and len(name) <= MAX_DIGITS):
            raise ValueError(f'has the name {name[:MAX_NAME]!r}: must be a token id, such as "50256"')
    return {int(name): number for name, number in value.items()}


def most_entries(most: int) -> BeforeValidator:
    """For an object with at most ``most`` names, which are counted before the first value is read.

    Beside ``max_length``, which is checked after the last one and is part of the OpenAPI document.
    """

    def check_value(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > most:
            raise ValueError(f"has {len(value)} entries: at most {most}")
        return value

    return BeforeValidator(check_value)


LogitBias = Annotated[
    dict[int, Annotated[float, Field(ge=-100, le=100)]],
    Field(max_length=MAX_BIASES),
    BeforeValidator(_token_keys),
    most_entries(MAX_BIASES),
]


def _short_entries(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if len(name) > 64 or len(text) > 512:
            raise ValueError("names have at most 64 characters, and values 512")
    return value


MAX_METADATA = 16
"""OpenAI's limit."""
Metadata = Annotated[
    dict[Text, Text], Field(max_length=MAX_METADATA), AfterValidator(_short_entries), most_entries(MAX_METADATA)
]


_ignored: ContextVar[list[str] | None] = ContextVar("_ignored", default=None)


@contextmanager
def collect_ignored() -> Iterator[list[str]]:
    """Collects paths such as ``messages[].cache_control``: fields of the call in progress that have no effect.

    The middleware collects those of a call, and names them in the header ``X-Paternoster-Ignored`` of its answer.
    """
    names: list[str] = []
    token = _ignored.set(names)
    try:
        yield names
    finally:
        _ignored.reset(token)


def report_ignored(*names: str) -> None:
    """The fields ``names`` were accepted, and have no effect on the answer to the call in progress."""
    collected = _ignored.get()
    if collected is not None:
        collected += [name for name in dict.fromkeys(names) if name not in collected][: MAX_IGNORED - len(collected)]


def _fails_fast(schema: CoreSchema) -> CoreSchema:
    """``schema``, in which each list is read up to its first wrong item: pydantic would describe them all."""
    left: list[Any] = [schema]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            if part.get("type") == "list":
                part["fail_fast"] = True
            left += part.values()
        elif isinstance(part, list | tuple):
            left += part
    return schema


class Body(BaseModel):
    """A request body, or an object in one.

    Fields that are null take their defaults. Fields that no type has are left out and reported as ignored: every
    client has some of its own, and an answer that names them serves it better than none. A field that is known and asks
    for something the engine does not do is declared with :func:`allow_only` and refused, or with :func:`accept_hint`
    and reported, where an answer without it still answers the request.
    """

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    _ignored_names: tuple[str, ...] = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _fails_fast(handler(source))

    @model_validator(mode="wrap")
    @classmethod
    def _leave_out(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, dict):
            return handler(data)
        given = {name: value for name, value in data.items() if value is not None} if None in data.values() else data
        outermost = not within_body()
        if outermost:
            with collect_counts(), charge_reading():
                body = handler(cls._read(given))
        else:
            count_object()
            body = handler(cls._read(given))
        names = dict.fromkeys(islice(body._own_ignored(given), MAX_IGNORED))
        if names:
            body._ignored_names = tuple(islice(sorted(names), MAX_IGNORED))
        if outermost:
            report_ignored(*body._ignored_names)
        return body

    @classmethod
    def _read(cls, given: dict[str, Any]) -> dict[str, Any]:
        """So much of an object as is looked at."""
        return given

    def _own_ignored(self, given: Mapping[str, Any]) -> Iterator[str]:
        """Paths of what is ignored of this object, of which ``given`` was sent."""
        own = own_names(type(self))
        yield from (_shorten_name(name) for name in given if name not in own)
        for name, field_hint in _hints_of_fields(type(self)).items():
            value = getattr(self, name)
            if not field_hint.is_served(value):
                setattr(self, name, field_hint.served[0])
                yield ignored_value(name, value) if isinstance(value, str) else name
        for name, value in self.__dict__.items():
            if isinstance(value, Body):
                yield from (f"{name}.{path}" for path in value._ignored_names)
            elif isinstance(value, list) and value and isinstance(value[0], Body):
                yield from dict.fromkeys(
                    f"{name}[].{path}" for part in value if isinstance(part, Body) for path in part._ignored_names
                )


@cache
def own_names(cls: type[Body]) -> frozenset[str]:
    """What its fields are called in a body."""
    return frozenset({field.alias or name for name, field in cls.model_fields.items()})


@cache
def _hints_of_fields(cls: type[Body]) -> Mapping[str, Hint]:
    found = {
        name: [each for each in field.metadata if isinstance(each, Hint)] for name, field in cls.model_fields.items()
    }
    return {name: hints[0] for name, hints in found.items() if hints}


def ignored_value(field: str, value: str) -> str:
    """The name of one value of a field that is ignored: ``type=web_search``."""
    return f"{field}={re.sub(r'[^A-Za-z0-9_.-]', '_', value[:MAX_NAME])}"


def _shorten_name(name: str) -> str:
    """So much of ``name`` as a header can hold."""
    return re.sub(r"[^A-Za-z0-9-]", "_", name[:MAX_NAME])
