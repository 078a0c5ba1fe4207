"""``[f(a=1, b="x"), g()]`` as the whole answer: Llama 3.2 and 4, ToolACE; Llama 4 may put ``<|python_start|>`` before.

A call is told when it is whole: what it says in Python's literals is told in JSON.
"""

import ast
import json
import re
import warnings
from collections.abc import Collection
from typing import Any

from paternoster_engine.server.parsers.events import Arguments, Call, Content, Read
from paternoster_engine.server.parsers.reader import Reader

BEGIN = "<|python_start|>"
END = "<|python_end|>"
MAX_CALL = 2**16
"""Characters of one call; a longer one is text."""
_NAME = re.compile(r"[^\W\d][\w.-]*")
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
    start = reader.place
    if not (yield from _skip_parentheses(reader)):
        return None
    arguments = _json_of(reader.held[start : reader.place])
    return None if arguments is None else (name, arguments)


def _skip_parentheses(reader: Reader) -> Read[bool]:
    depth, quote, escaped, left = 0, "", False, MAX_CALL
    while left and (character := (yield from reader.peek())) != "":
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
                return True
    return False


def _json_of(parentheses: str) -> str | None:
    """Keyword arguments as a JSON object; None where they are no literals."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(f"f{parentheses}", mode="eval").body
        if not isinstance(tree, ast.Call) or tree.args or any(keyword.arg is None for keyword in tree.keywords):
            return None
        values = {str(keyword.arg): _literal(keyword.value) for keyword in tree.keywords}
        text = json.dumps(values, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return text


def _literal(node: ast.expr) -> Any:
    """Raises ``ValueError``, and ``TypeError`` for a key that is no text."""
    match node:
        case ast.Constant(value=str() | bool() | int() | float() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=name) if name in _JSON_NAMES:
            return _JSON_NAMES[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _literal(value) for key, value in zip(keys, values, strict=True)}
    raise ValueError(f"{type(node).__name__} is no literal")


def _key(node: ast.expr | None) -> str:
    value = None if node is None else _literal(node)
    if not isinstance(value, str):
        raise TypeError("a key must be a text")
    return value
