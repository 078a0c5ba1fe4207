"""Settings that are flags of a command: two spellings of one model."""

import argparse
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError


class Settings(BaseModel):
    """Fields whose names, defaults and descriptions are those of flags."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def to_flags(self) -> list[str]:
        """Command-line flags for every setting that differs from its default, in field order."""
        flags: list[str] = []
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value == field.default:
                continue
            flag = "--" + name.replace("_", "-")
            if isinstance(value, bool):
                flags.append(flag if value else "--no-" + flag.removeprefix("--"))
            else:
                flags += [flag, str(value)]
        return flags

    @classmethod
    def add_flags(cls, parser: "argparse._ActionsContainer") -> None:
        """Give ``parser`` one flag for each setting; values stay text, for pydantic to check with the field's name."""
        # What a class adds comes before what it takes over.
        for name in sorted(cls.model_fields, key=lambda name: name not in cls.__annotations__):
            field = cls.model_fields[name]
            flag = "--" + name.replace("_", "-")
            text = (field.description or "").replace("%", "%%")
            if field.annotation is bool:
                parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
            else:
                default = "" if field.default is None else f" (default: {field.default})"
                parser.add_argument(flag, default=None, metavar="VALUE", help=text + default)

    @classmethod
    def from_namespace(cls, namespace: argparse.Namespace) -> Self:
        """Check parsed flags; raises :class:`pydantic.ValidationError` naming each bad field."""
        given: dict[str, Any] = {}
        for name in cls.model_fields:
            value = getattr(namespace, name, None)
            if value is not None:
                given[name] = value
        return cls.model_validate(given)


def flag_errors(error: ValidationError) -> list[str]:
    """The flag, what it was given, what it allows; for an error of several flags, what the model says."""
    return [_line(detail["loc"], detail["input"], detail["msg"]) for detail in error.errors()]


def _line(location: tuple[int | str, ...], value: object, message: str) -> str:
    message = message.removeprefix("Value error, ")
    if not location:
        return message
    flag = str(location[0]).replace("_", "-")
    return f"--{flag} is {value!r}: {message[:1].lower()}{message[1:]}"
