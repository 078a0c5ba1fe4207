"""Translate names of the chat's fields into those of the client's API, for errors and for ignored fields."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from paternoster_engine.chat.errors import ChatTemplateError
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai.fields.body import collect_ignored, report_ignored
from paternoster_engine.server.openai.requests import ChatCompletionRequest
from paternoster_engine.server.translation.tools import OfferedTool


@dataclass(frozen=True, slots=True)
class ClientNames:
    """The client's names of the chat's fields."""

    fields: Mapping[str, str]
    """Name in the chat -> name in the client's body; empty for a level that the client's body lacks."""
    tools: Sequence[OfferedTool] = ()
    """The chat's tools, in its order."""

    def with_tools(self, tools: Iterable[OfferedTool]) -> "ClientNames":
        return replace(self, tools=tuple(tools))

    def translate_field(self, field: str) -> str:
        """Return the client's name of the chat's ``field``, a path with dots."""
        return ".".join(self.translate_path(field.split(".")))

    def translate_path(self, path: Iterable[int | str]) -> list[str]:
        """Translate a path; of one in the conversation only the field, since the client's messages are others."""
        parts = [str(part) for part in path]
        if parts[:1] == ["messages"]:
            parts = parts[:1]
        begin: list[str] = []
        if parts[:1] == ["tools"] and len(parts) > 1 and parts[1].isdigit() and int(parts[1]) < len(self.tools):
            tool = self.tools[int(parts[1])]
            begin, parts = tool.place.split("."), parts[2:]
            if tool.kind == "custom" and "parameters" in parts:
                return [*begin, "format", "definition"]
        return [*begin, *(name for part in parts if (name := self.fields.get(part, part)))]


def chat_request(body: Mapping[str, Any], names: ClientNames) -> ChatCompletionRequest:
    """Validate the chat's body. Raises ``RequestValidationError`` with the client's names of fields."""
    try:
        # Ignored fields of the client's own body are reported already.
        with collect_ignored():
            return ChatCompletionRequest.model_validate(body)
    except ValidationError as error:
        raise RequestValidationError(
            [_translate_error(names, each) for each in error.errors(include_url=False)]
        ) from error


@contextmanager
def use_client_names(names: ClientNames) -> Iterator[None]:
    """Translate the field names of errors and ignored fields that occur within into the client's."""
    try:
        with collect_ignored() as ignored:
            yield
    except InvalidValue as error:
        translated = {field: names.translate_field(field) for field in (error.field, error.other) if field}
        # Longer ones first, as one may begin with the other, and no more than these: values may look like fields.
        either = "|".join(re.escape(field) for field in sorted(translated, key=len, reverse=True))
        message = re.sub(either, lambda found: translated[found[0]], str(error), count=len(translated))
        raise InvalidValue(translated[error.field], message) from error
    except ChatTemplateError as error:
        raise InvalidValue(names.translate_field("messages"), str(error)) from error
    report_ignored(*map(names.translate_field, ignored))


def _translate_error(names: ClientNames, error: Mapping[str, Any]) -> dict[str, Any]:
    translated = {**error, "loc": ("body", *names.translate_path(error["loc"]))}
    if isinstance(error["input"], list | dict):
        # It may be what the translation made.
        del translated["input"]
    return translated
