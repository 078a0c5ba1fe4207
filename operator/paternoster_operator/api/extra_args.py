"""Flags of ``paternoster serve`` that a resource gives as they are, and the fields that say the other settings."""

import argparse
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

from pydantic import ValidationError

from paternoster_contract.flags import flag_errors
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.settings.row import list_rows


@cache
def fields_of_settings() -> Mapping[str, str | None]:
    """The field below spec that sets each setting; None where the operator does."""
    return {row.name: row.field.path or None for row in list_rows(EngineArgs) if row.field is not None}


def parse_extra_args(words: Sequence[str], fields: Mapping[str, str | None]) -> dict[str, Any]:
    """Settings of ``words``, checked as ``paternoster serve`` checks them; ``fields`` as :func:`fields_of_settings`.

    Raises ``ValueError`` in the parser's own words, and for settings that ``fields`` has.
    """
    namespace = _make_parser().parse_args(words)
    given = {name for name, value in vars(namespace).items() if value is not None}
    faults = [_describe_owned_flag(name, fields[name]) for name in sorted(given & fields.keys())]
    if not faults:
        try:
            settings = EngineArgs.from_namespace(namespace)
        except ValidationError as error:
            faults = flag_errors(error)
        else:
            return {name: getattr(settings, name) for name in given}
    raise ValueError("; ".join(faults))


@cache
def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="paternoster serve", add_help=False, allow_abbrev=False)
    EngineArgs.add_flags(parser)
    return parser


def _describe_owned_flag(setting: str, field: str | None) -> str:
    flag = "--" + setting.replace("_", "-")
    return f"{flag} is for the operator to set" if field is None else f"{flag} must not be here: use spec.{field}"


class _Parser(argparse.ArgumentParser):
    """What would end a command is an error."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise ValueError((message or "").strip().removeprefix(f"{self.prog}: "))
