"""What pydantic finds wrong with a body, described by the fields and values that were sent."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, NamedTuple

from pydantic import ValidationError

from paternoster_engine.server.errors import MAX_SHOWN

MAX_LISTED = 10
"""Most errors described in one response."""
MESSAGES = {
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "union_tag_not_found": "must have the field 'type'",
}
"""Kinds of pydantic's errors whose messages speak of Python."""


def describe_errors(errors: Sequence[Mapping[str, Any]], body: Any) -> tuple[str, str | None]:
    """The message for ``errors``, pydantic's of ``body``, and the path of the first one's field.

    ``body`` None: it was another one, and the errors are in its words already.
    """
    listed = islice(_flatten_errors(errors), MAX_LISTED)
    found = list(_join_by_value(_describe_error(error, body) for error in listed))
    return "; ".join(map(str, found)), found[0].field


class _FieldError(NamedTuple):
    """What is wrong with one value."""

    field: str | None
    message: str
    value: str = ""
    """Value that messages show; empty: it is missing."""

    def __str__(self) -> str:
        before = "" if self.field is None else f"{self.field}: "
        return before + self.message + (f" (got {self.value})" if self.value else "")


def _join_by_value(errors: Iterable[_FieldError]) -> Iterator[_FieldError]:
    """Errors of one value as one: a value of several types is wrong by each of them."""
    for (field, value), same in groupby(errors, lambda each: (each.field, each.value)):
        messages = list(dict.fromkeys(each.message for each in same))
        rest = (message.removeprefix("Input should be ").removeprefix("must be ") for message in messages[1:])
        if field is None:
            yield from (_FieldError(None, message) for message in messages)
        else:
            yield _FieldError(field, " or ".join([messages[0], *rest]), value)


def _flatten_errors(errors: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """With those that a validator of ours got from a type in place of its own."""
    for error in errors:
        cause = error.get("ctx", {}).get("error")
        if isinstance(cause, ValidationError):
            yield from ({**inner, "loc": (*error["loc"], *inner["loc"])} for inner in cause.errors())
        else:
            yield error


def _describe_error(error: Mapping[str, Any], body: Any) -> _FieldError:
    missing = error["type"] == "missing"
    path, value = [str(part) for part in error["loc"][1:]], error.get("input")
    if body is not None:
        path, value = _descend_path(body, error["loc"][1:], missing=missing)
    field = ".".join(part[:MAX_SHOWN] for part in path)[:MAX_SHOWN] or None
    if error["type"] == "extra_forbidden":
        return _FieldError(field, "unknown field")
    message = MESSAGES.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "union_tag_invalid":
        message = f"the field {error['ctx']['discriminator']} must be one of {error['ctx']['expected_tags']}"
    if error["type"] in ("too_long", "too_short") and isinstance(value, str):
        bound = "at most {max_length}" if error["type"] == "too_long" else "at least {min_length}"
        message = f"must have {bound} characters, not {{actual_length}}".format(**error["ctx"])
    return _FieldError(field, message, "" if missing or field is None else format_value(value))


def _descend_path(body: Any, loc: Sequence[int | str], *, missing: bool) -> tuple[list[str], Any]:
    """The part of ``loc`` that leads through ``body``, and what is there; a field that is ``missing`` ends it.

    pydantic also puts in which of several types it tried.
    """
    path, value = [], body
    for place, part in enumerate(loc):
        last = place == len(loc) - 1
        if isinstance(value, dict):
            name = next((key for key in (part, str(part)) if key in value), None)
            if name is not None:
                path.append(str(name))
                value = value[name]
            elif last and (missing or _is_field(part)):
                path.append(str(part))
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            path.append(str(part))
            value = value[part]
    return path, value


def _is_field(part: int | str) -> bool:
    """Whether a part of pydantic's path is a field, and not a type of which it is none."""
    return (
        isinstance(part, str) and part.isidentifier() and part.islower() and part not in ("bool", "float", "int", "str")
    )


def format_value(value: Any) -> str:
    """``value`` as a message has it, of bounded length; null, true and false as in JSON."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(_shorten_value(value, iter(range(MAX_SHOWN))))
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _shorten_value(value: Any, left: Iterator[int]) -> Any:
    """``value`` with long texts cut and without items after the last of ``left``: a value may be megabytes."""
    if isinstance(value, str):
        return value[:MAX_SHOWN]
    if isinstance(value, list):
        return [_shorten_value(item, left) for item, _ in zip(value, left, strict=False)]
    if isinstance(value, dict):
        return {
            _shorten_value(name, left): _shorten_value(item, left)
            for (name, item), _ in zip(value.items(), left, strict=False)
        }
    return value
