"""``[f(a=1, b="x"), g()]`` as the whole answer: Llama 3.2 and 4, ToolACE; Llama 4 may put ``<|python_start|>`` before.

A call is told when it is whole: what it says in Python's literals is told in JSON.
"""

import ast
import json
import re
import warnings
from collections.abc import Collection
from typing import Any

from paternoster_engine.server.parsers.arguments.named import NamedArguments
from paternoster_engine.server.parsers.call_form import Begun, CallForm
from paternoster_engine.server.parsers.calls.typed_values import is_json
from paternoster_engine.server.parsers.events import Arguments, Call, Content, Read
from paternoster_engine.server.parsers.reader import Reader

BEGIN = "<|python_start|>"
END = "<|python_end|>"
MAX_CALL = 2**16
"""Characters of one call; a longer one is text."""
FORM = CallForm(
    "%s(",
    ")",
    between=", ",
    opening="[",
    closing="]",
    arguments=NamedArguments("%s=", "", name=r"[^\W\d][\w.-]*", between=True),
    begun=Begun(
        # The name alone tells a call from other text.
        r"\A\s*(?:<\|python_start\|>\s*)?(?P<held>\[\s*(?:%s)\()",
        ("%s( ",),
        " )",
        listed=True,
        several=False,
    ),
)
_NAME = re.compile(r"[\w.-]+")
_KEYWORD = re.compile(r"\s*([^\s=,()\[\]{}\"'#*]+)\s*=(?!=)")
_JSON_NAMES = {"true": True, "false": False, "null": None}


def read(reader: Reader, names: Collection[str]) -> Read[None]:
    yield from reader.peek_solid()
    yield from reader.take(BEGIN)
    if (yield from reader.peek_solid()) == "[":
        reader.place += 1
        if (yield from _read_list(reader, names)):
            yield from reader.peek_solid()
            yield from reader.take(END)
            yield from reader.peek_solid()
            reader.commit()
    reader.reject()
    yield from reader.pass_rest(Content)


def _read_list(reader: Reader, names: Collection[str]) -> Read[bool]:
    """Whether it was one to its end; what is no call is not committed."""
    while True:
        yield from reader.peek_solid()
        found = yield from _read_call(reader, names)
        if found is None:
            return False
        reader.commit()
        yield Call(found[0])
        yield Arguments(found[1])
        separator = yield from reader.peek_solid()
        reader.place += 1
        if separator != ",":
            return separator == "]"


def _read_call(reader: Reader, names: Collection[str]) -> Read[tuple[str, str] | None]:
    """Name and arguments."""
    name = yield from reader.match(_NAME, 1024)
    if name is None or name not in names or (yield from reader.peek()) != "(":
        return None
    pieces = yield from _pieces(reader)
    arguments = None if pieces is None else _json_of(pieces)
    return None if arguments is None else (name, arguments)


def _pieces(reader: Reader) -> Read[list[str] | None]:
    """What is between parentheses, cut at commas that are in no others; None where they do not close."""
    depth, quote, escaped, left = 0, "", False, MAX_CALL
    pieces: list[str] = []
    start = reader.place + 1
    while left and (character := (yield from reader.peek())) != "":
        if depth == 1 and not quote and character in ",)":
            pieces.append(reader.held[start : reader.place])
            start = reader.place + 1
        reader.place += 1
        left -= 1
        if quote:
            if not escaped and character == quote:
                quote = ""
            escaped = not escaped and character == "\\"
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0:
                return pieces
    return None


def _json_of(pieces: list[str]) -> str | None:
    """Keyword arguments as a JSON object, the first of each name; None where they are no literals."""
    if not pieces[-1].strip():
        pieces = pieces[:-1]
    values: dict[str, str] = {}
    for piece in pieces:
        found = _KEYWORD.match(piece)
        value = None if found is None else _literal(piece[found.end() :].strip())
        if found is None or value is None:
            return None
        values.setdefault(found[1], value)
    return "{" + ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in values.items()) + "}"


def _literal(text: str) -> str | None:
    """As JSON: what is JSON already stays as it is; None where it is no literal."""
    try:
        if is_json(text):
            return text
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(f"({text}\n)", mode="eval").body
        made = json.dumps(_value(tree), ensure_ascii=False, allow_nan=False)
        made.encode()
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return made


def _value(node: ast.expr) -> Any:
    """Raises ``ValueError``, and ``TypeError`` for a key that is no text."""
    match node:
        case ast.Constant(value=str() | bool() | int() | float() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=name) if name in _JSON_NAMES:
            return _JSON_NAMES[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _value(value) for key, value in zip(keys, values, strict=True)}
    raise ValueError(f"{type(node).__name__} is no literal")


def _key(node: ast.expr | None) -> str:
    value = None if node is None else _value(node)
    if not isinstance(value, str):
        raise TypeError("a key must be a text")
    return value
