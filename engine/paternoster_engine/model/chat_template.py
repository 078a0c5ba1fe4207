"""A model's own chat template, rendered in a sandbox with the settings Hugging Face templates are written for."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class ChatTemplateError(ValueError):
    """The model has no chat template, or its template refused the messages."""


class ChatTemplate:
    """Compiled once; ``variables`` (such as ``bos_token``) are given to every rendering."""

    def __init__(self, source: str, variables: Mapping[str, Any]) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ChatTemplateError(f"the model's chat template does not compile: {error}") from error
        self._variables = dict(variables)

    def render(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """Prompt text for ``messages``; raises :class:`ChatTemplateError`."""
        try:
            return self._template.render(**{**self._variables, "messages": messages, **variables})
        except (TemplateError, TypeError, ValueError) as error:
            raise ChatTemplateError(f"the model's chat template refuses these messages: {error}") from error


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(value: Any, indent: int | None = None) -> str:
    # jinja2's own filter escapes for HTML, which a prompt must not be.
    return json.dumps(value, ensure_ascii=False, indent=indent)
