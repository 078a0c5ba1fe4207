"""Keywords of schemas that cannot be enforced: refused with ``strict``, else reported as ignored."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.limits import MAX_BYTES
from paternoster_engine.sampling.grammars.schemas.rewriting import Unenforced
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai.fields.body import MAX_NAME, report_ignored
from paternoster_engine.server.openai.requests import ChatCompletionRequest
from paternoster_engine.server.parsers.arguments.enforced import enforce_arguments
from paternoster_engine.server.parsers.arguments.json_object import Arguments
from paternoster_engine.server.parsers.call_form import ARGUMENTS, ArgumentsError, Outline, RequiredCalls

MAX_PATH = 256
"""Characters of one keyword's path in a header: of a longer one the end is named."""


class FieldKeyword(NamedTuple):
    """A keyword of the schema in a field of the body."""

    field: str
    keyword: Unenforced
    strict: bool

    @property
    def path(self) -> str:
        """Within the schema."""
        return ".".join((*self.keyword.path, self.keyword.keyword))


def tool_field(body: ChatCompletionRequest, name: str) -> str:
    """Where the schema of the arguments of the tool ``name`` is."""
    index = [tool.function.name for tool in body.tools].index(name)
    return f"tools.{index}.function.parameters"


def enforce_calls(
    body: ChatCompletionRequest, calls: RequiredCalls, arguments: Arguments
) -> tuple[RequiredCalls, list[FieldKeyword]]:
    """``calls`` whose schemas have what can be enforced where calls have ``arguments``, and the rest.

    Raises :class:`ArgumentsError`.
    """
    strict = _strict_tools(body)
    tools, rest, size = [], [], 0
    for name, schema in calls.tools:
        try:
            made = enforce_arguments(arguments, schema)
        except GrammarError as error:
            raise ArgumentsError(name, str(error)) from error
        size += len(json.dumps(made.schema))
        if size > MAX_BYTES:
            # The compiler would refuse it: the other schemas need not be read.
            raise ArgumentsError(name, f"the grammar of all tools has more than {MAX_BYTES} bytes")
        tools.append((name, made.schema))
        rest += [FieldKeyword(tool_field(body, name), keyword, name in strict) for keyword in made.unenforced]
    return calls._replace(tools=tools), rest


def find_in_answer(field: str, keywords: Iterable[Unenforced], *, strict: bool) -> list[FieldKeyword]:
    """Of the schema that the answer's content is of."""
    return [FieldKeyword(field, keyword, strict) for keyword in keywords if not _tool_of(keyword)]


def find_in_calls(body: ChatCompletionRequest, outline: Outline, keywords: Iterable[Unenforced]) -> list[FieldKeyword]:
    """Of schemas of tools that the compiled ``outline`` does not enforce."""
    strict, found = _strict_tools(body), []
    for keyword in keywords:
        rule = _tool_of(keyword)
        if rule is not None:
            name = outline.tools[int(rule[1])]
            own = keyword._replace(path=keyword.path[1:])
            found.append(FieldKeyword(tool_field(body, name), own, name in strict))
    return found


def _tool_of(keyword: Unenforced) -> re.Match[str] | None:
    """The number of a tool in the name of a rule of its arguments."""
    return re.match(rf"{ARGUMENTS}_(\d+)", keyword.path[0]) if keyword.path else None


def _strict_tools(body: ChatCompletionRequest) -> frozenset[str]:
    return frozenset(tool.function.name for tool in body.tools if tool.function.strict)


def check_strict(keywords: Sequence[FieldKeyword]) -> None:
    """Raises :class:`InvalidValue` for an assertion in a schema with ``strict``."""
    for found in keywords:
        if found.strict and found.keyword.asserts:
            raise InvalidValue(
                found.field,
                f"{found.field}: cannot be enforced: {found.path:.300} is not supported, and strict is true: leave the "
                "keyword out, or send strict=false and check answers for it",
            )


def report_unenforced(keywords: Sequence[FieldKeyword]) -> None:
    """Name them in the answer's header; raises as :func:`check_strict`."""
    check_strict(keywords)
    report_ignored(*(_header_name(found) for found in keywords))


def _header_name(found: FieldKeyword) -> str:
    parts = (re.sub(r"[^A-Za-z0-9$_-]", "_", part[:MAX_NAME]) for part in (*found.keyword.path, found.keyword.keyword))
    path = ".".join(parts)
    return f"{found.field}.{path if len(path) <= MAX_PATH else f'...{path[-MAX_PATH:]}'}"
