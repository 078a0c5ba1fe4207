"""``[f(a=1, b="x"), g()]`` as the whole answer: Llama 3.2 and 4, ToolACE; Llama 4 may put ``<|python_start|>`` before.

Literals of Python become JSON: a text while it is written, any other argument when it is whole.
"""

import ast
import json
import re
import warnings
from collections.abc import Collection
from typing import Any

from paternoster_engine.server.parsers.arguments.named import NamedArguments
from paternoster_engine.server.parsers.call_form import CallForm, CallSpelling
from paternoster_engine.server.parsers.calls.strings import pass_string
from paternoster_engine.server.parsers.calls.typed_values import is_json
from paternoster_engine.server.parsers.events import Arguments, CallBegin, Content, Read
from paternoster_engine.server.parsers.reader import Reader

BEGIN = "<|python_start|>"
END = "<|python_end|>"
MAX_NAME = 1024
MAX_VALUE = 2**16
"""Characters of a value that is no text; a longer one ends the call."""
FORM = CallForm(
    "%s(",
    ")",
    between=", ",
    opening="[",
    closing="]",
    arguments=NamedArguments("%s=", "", name=r"[^\W\d][\w.-]*", between=True),
    begun=CallSpelling(
        # The name alone separates a call from other text.
        r"\A\s*(?:<\|python_start\|>\s*)?(?P<held>\[\s*(?:%s)\()",
        ("%s( ",),
        " )",
        listed=True,
        several=False,
    ),
)
_NAME = re.compile(r"[\w.-]+")
_NO_KEYWORD = tuple("=,()[]{}\"'#*")
_KEYWORD = re.compile(r"[^\s=,()\[\]{}\"'#*]+")
_JSON_NAMES = {"true": True, "false": False, "null": None}


def read_answer(reader: Reader, names: Collection[str]) -> Read[None]:
    yield from reader.peek_solid()
    yield from reader.match_option(BEGIN)
    if (yield from reader.peek_solid()) == "[":
        reader.place += 1
        if (yield from _read_list(reader, names)):
            yield from reader.drop_leftover((END,))
    reader.reject()
    yield from reader.pass_rest(Content)


def _read_list(reader: Reader, names: Collection[str]) -> Read[bool]:
    """Whether it was one to its end; what is no call is not committed."""
    while True:
        yield from reader.peek_solid()
        if not (yield from _PythonicCall(names).read(reader)):
            return False
        while (separator := (yield from reader.peek_solid())) in (")", "}"):
            # Too many.
            reader.place += 1
        if separator not in (",", "]"):
            return reader.ended and separator == ""
        reader.place += 1
        if separator == "]" or (yield from reader.peek_solid()) == "]":
            reader.reject(reader.place + (separator == ","))
            return True


class _PythonicCall:
    """One call while it is read: its events begin with its first argument, once that is seen to be one."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._name = ""
        self._announced = False
        self._seen: set[str] = set()

    def read(self, reader: Reader) -> Read[bool]:
        reader.starved = False
        name = yield from reader.match_pattern(_NAME, MAX_NAME)
        if name is None or name not in self._names or (yield from reader.peek()) != "(":
            return False
        self._name = name
        reader.place += 1
        if not (yield from self._read_arguments(reader)):
            if self._announced or reader.starved:
                yield from self._announce_call(reader, cut=not self._announced)
                reader.reject(len(reader.held))
            return self._announced
        yield from self._announce_call(reader)
        yield Arguments("}")
        return True

    def _announce_call(self, reader: Reader, *, cut: bool = False) -> Read[None]:
        """Commit what was read as a call's; ``cut``: the text ended before its first argument."""
        reader.commit()
        if not self._announced:
            self._announced = True
            yield CallBegin(self._name)
            yield Arguments("" if cut else "{")

    def _read_arguments(self, reader: Reader) -> Read[bool]:
        """False where they end before the closing parenthesis, or are none."""
        while True:
            character = yield from reader.peek_solid()
            if character == "":
                return False
            if character == ")":
                reader.place += 1
                return True
            before = yield from self._read_keyword(reader)
            if before is None and not self._announced:
                return False
            if before is not None and (yield from reader.peek()) in ("'", '"'):
                yield from self._announce_call(reader)
                if not (yield from self._read_strings(reader, before)):
                    return False
            elif not (yield from self._read_value(reader, before)):
                return False
            if (yield from reader.peek_solid()) == ",":
                reader.place += 1

    def _read_keyword(self, reader: Reader) -> Read[str | None]:
        """JSON before a value: a comma and the name, empty for a name that has a value already; None without a name."""
        start = reader.place
        name = None if reader.held[start] in _NO_KEYWORD else (yield from reader.match_pattern(_KEYWORD, MAX_NAME))
        if name is None or (yield from reader.peek_solid()) != "=" or (yield from _is_comparison(reader)):
            reader.place = start
            return None
        reader.place += 1
        yield from reader.peek_solid()
        if name in self._seen:
            return ""
        comma = ", " if self._seen else ""
        self._seen.add(name)
        return f"{comma}{json.dumps(name, ensure_ascii=False)}: "

    def _read_strings(self, reader: Reader, before: str) -> Read[bool]:
        """Give away a string, or several next to each other, while they are written."""

        def make_arguments(text: str) -> Arguments:
            return Arguments(json.dumps(text, ensure_ascii=False)[1:-1] if before else "")

        yield Arguments(f'{before}"' if before else "")
        while (quote := (yield from reader.peek_solid())) in ("'", '"'):
            quote = (yield from reader.match_option(quote * 3)) or (yield from reader.match_option(quote))
            reader.commit()
            if not (yield from pass_string(reader, make_arguments, quote)):
                return False
        yield Arguments('"' if before else "")
        return quote in (",", ")") or (yield from self._read_value(reader, None))

    def _read_value(self, reader: Reader, before: str | None) -> Read[bool]:
        """Give away a value at its end, as JSON or, if it is no literal, unchanged: the first of a call must be one."""
        start = reader.place
        if not (yield from _pass_value(reader)):
            return False
        text = reader.held[start : reader.place].strip()
        value = None if before is None else _json_of_literal(text)
        if value is None and not self._announced:
            return False
        yield from self._announce_call(reader)
        if before != "":
            yield Arguments((before or "") + (text if value is None else value))
        return True


def _is_comparison(reader: Reader) -> Read[bool]:
    """Whether the next character, an equals sign, has one behind it."""
    reader.place += 1
    following = yield from reader.peek()
    reader.place -= 1
    return following == "="


def _pass_value(reader: Reader) -> Read[bool]:
    """Take what is before a comma or parenthesis that is in no others; False where there is none."""
    depth, quote, escaped, left = 0, "", False, MAX_VALUE
    while left and (character := (yield from reader.peek())) != "":
        if not quote and depth == 0 and character in ",)":
            return True
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
            if depth == 0:
                return False
            depth -= 1
    return False


def _json_of_literal(text: str) -> str | None:
    """Write a literal as JSON: what is JSON already stays as it is; None where it is no literal."""
    try:
        if is_json(text):
            return text
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(f"({text}\n)", mode="eval").body
        made = json.dumps(_value_of_node(tree), ensure_ascii=False, allow_nan=False)
        made.encode()
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return made


def _value_of_node(node: ast.expr) -> Any:
    """Raises ``ValueError``, and ``TypeError`` for a key that is no text."""
    match node:
        case ast.Constant(value=str() | bool() | int() | float() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id=name) if name in _JSON_NAMES:
            return _JSON_NAMES[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value_of_node(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key_of_node(key): _value_of_node(value) for key, value in zip(keys, values, strict=True)}
    raise ValueError(f"{type(node).__name__} is no literal")


def _key_of_node(node: ast.expr | None) -> str:
    value = None if node is None else _value_of_node(node)
    if not isinstance(value, str):
        raise TypeError("a key must be a text")
    return value
