"""Settings that are flags of a command: two spellings of one model."""

import argparse
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError


class Settings(BaseModel):
    """Fields whose names, defaults and descriptions are those of flags."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    flag_order: ClassVar[tuple[str, ...]] = ()
    """Settings whose flags come first in :meth:`to_flags`."""
    removed: ClassVar[Mapping[str, str]] = {}
    """Settings that are gone: what to do instead of using their flags."""

    def replace(self, **changes: Any) -> Self:
        """A copy with ``changes``, checked as a whole; raises :class:`pydantic.ValidationError`."""
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **changes})

    def to_flags(self) -> list[str]:
        """Command-line flags for every setting that differs from its default."""
        flags: list[str] = []
        for name in dict.fromkeys((*self.flag_order, *type(self).model_fields)):
            value = getattr(self, name)
            if value == type(self).model_fields[name].get_default(call_default_factory=True):
                continue
            flag = _write_flag(name)
            if isinstance(value, bool):
                flags.append(flag if value else "--no-" + flag.removeprefix("--"))
                continue
            if isinstance(value, Mapping):
                value = ",".join(f"{key}={each}" for key, each in value.items())
            for each in value if isinstance(value, tuple) else (value,):
                # A text that begins with a dash would be read as a flag.
                dashed = isinstance(each, str) and each.startswith("-")
                flags += [f"{flag}={each}"] if dashed else [flag, str(each)]
        return flags

    @classmethod
    def add_flags(cls, parser: "argparse._ActionsContainer") -> None:
        """Give ``parser`` one flag for each setting; values stay text, for pydantic to check with the field's name."""
        # What a class adds comes before what it takes over, in the order in which it names its parts.
        own = (name for part in cls.__mro__ for name in vars(part).get("__annotations__", ()))
        for name in dict.fromkeys(name for name in own if name in cls.model_fields):
            field = cls.model_fields[name]
            flag = _write_flag(name)
            text = (field.description or "").replace("%", "%%")
            text = text[:1].lower() + text[1:].removesuffix(".")
            if field.annotation is bool:
                parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
            elif get_origin(field.annotation) is tuple:
                parser.add_argument(flag, default=None, metavar="VALUE", nargs="+", action="append", help=text)
            else:
                value = field.get_default(call_default_factory=True)
                default = "" if value is None or value == {} else f" (default: {value})"
                parser.add_argument(flag, default=None, metavar="VALUE", help=text + default)
        for name, instead in cls.removed.items():
            parser.add_argument(_write_flag(name), action=RemovedFlag, instead=instead)

    @classmethod
    def refuse_flags(cls, parser: "argparse._ActionsContainer", instead: str, others: Collection[str] = ()) -> None:
        """Make each flag of :meth:`add_flags` but those of ``others`` an error that states what to do ``instead``."""
        for name, field in cls.model_fields.items():
            if name in others:
                continue
            flags = (_write_flag(name), _write_flag(f"no_{name}")) if field.annotation is bool else (_write_flag(name),)
            parser.add_argument(*flags, action=RemovedFlag, instead=instead)

    @classmethod
    def from_namespace(cls, namespace: argparse.Namespace) -> Self:
        """Check parsed flags; raises :class:`pydantic.ValidationError` naming each bad field."""
        given: dict[str, Any] = {}
        for name in cls.model_fields:
            value = getattr(namespace, name, None)
            if value is not None:
                # A flag with several values may be given several times.
                given[name] = [each for values in value for each in values] if isinstance(value, list) else value
        return cls.model_validate(given)


class RemovedFlag(argparse.Action):
    """A removed flag: absent from the help; its use is an error that names the successor."""

    def __init__(self, *, instead: str, **kwargs: Any) -> None:
        super().__init__(nargs="?", default=argparse.SUPPRESS, help=argparse.SUPPRESS, **kwargs)
        self._instead = instead

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, values: object, option_string: str | None = None
    ) -> None:
        parser.exit(2, f"{parser.prog}: {option_string} {self._instead}\n")


def _write_flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def flag_errors(error: ValueError) -> list[str]:
    """The flag, what it was given, what it allows; for an error of several flags or of others, what it says."""
    if not isinstance(error, ValidationError):
        return [str(error)]
    return [_describe_error(detail["loc"], detail["input"], detail["msg"]) for detail in error.errors()]


def _describe_error(location: tuple[int | str, ...], value: object, message: str) -> str:
    message = message.removeprefix("Value error, ")
    if not location:
        return message
    return f"{_write_flag(str(location[0]))} is {value!r}: {message[:1].lower()}{message[1:]}"
