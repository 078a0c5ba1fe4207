"""A model's own chat template in a sandbox, with the settings Hugging Face templates are written for.

It is what ``transformers`` offers them, less ``lipsum``: a prompt follows from its messages. The sandbox keeps a
template from reaching out; time and memory are bounded by the process it runs in, :mod:`.worker`.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from paternoster_engine.chat.errors import ChatTemplateError

MAX_ERROR_LENGTH = 300
"""Most characters of a template's own error that are reported."""


class _Refusal(TemplateError):
    """The template called ``raise_exception``."""


class _Generation(Extension):
    """``{% generation %}`` marks answers of the assistant for training; a prompt has only its content."""

    tags: set[str] = {"generation"}  # noqa: RUF012 - declared so by jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template; every rendering gets ``variables``, such as ``bos_token``."""

    def __init__(self, source: str, variables: Mapping[str, Any]) -> None:
        """Raises :class:`ChatTemplateError`."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        del environment.globals["lipsum"]
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except Exception as error:
            raise ChatTemplateError(f"the model's chat template does not compile: {_error_text(error)}") from error
        self._variables = dict(variables)

    def render(self, messages: Sequence[Mapping[str, Any]], most: int, /, **variables: Any) -> str:
        """Prompt text for ``messages``, at most ``most`` bytes in UTF-8; raises :class:`ChatTemplateError`."""
        # A variable that a request leaves out is none and not undefined: templates treat the two differently.
        given = {**self._variables, "messages": messages, "tools": None, "documents": None, **variables}
        pieces, left = [], most
        try:
            for piece in self._template.generate(given):
                left -= len(piece.encode())
                if left < 0:
                    raise ChatTemplateError(f"the model's chat template makes more than {most} bytes of these messages")
                pieces.append(piece)
        except ChatTemplateError:
            raise
        except _Refusal as error:
            raise ChatTemplateError(
                f"the model's chat template refuses these messages: {_error_text(error)}"
            ) from error
        # A template may raise whatever its expressions raise: division by zero, overflow, memory, recursion.
        except Exception as error:
            raise ChatTemplateError(
                f"the model's chat template fails on these messages: {_error_text(error)}"
            ) from error
        return "".join(pieces)


def _error_text(error: Exception) -> str:
    text = str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}".removesuffix(": ")
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= MAX_ERROR_LENGTH else text[:MAX_ERROR_LENGTH] + "..."


def _raise_exception(message: str) -> NoReturn:
    raise _Refusal(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes for HTML, which a prompt must not be.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
