"""JSON schemas drawn from a seed: keywords that can be enforced, in sizes that a small model brings to an end."""

import random
from collections.abc import Callable, Sequence
from typing import Any

WORDS = ("name", "age", "city", "size", "a b", "ключ", "n-1")
FORMATS = ("date", "time", "date-time", "ipv4", "uuid", "email", "hostname")
PATTERNS = ("^[a-z]{1,6}$", "^(ab|cd)+e?$", "^[A-Z]{2}-[0-9]{2,4}$", "x{2,3}", "^\\d{1,3}(\\.\\d)?$")


def drawn(seed: int) -> dict[str, Any]:
    """The schema of a seed; recursion, references and combinations included."""
    pick = random.Random(seed)
    if pick.random() < 0.2:
        inner = _any(pick, 1)
        reference = {"$ref": "#/$defs/inner"}
        outer = pick.choice(
            [reference, {"type": "array", "items": reference, "maxItems": 2}, _object({"x": reference})]
        )
        return {"$defs": {"inner": inner}, **outer}
    return _any(pick, 3)


def _any(pick: random.Random, depth: int) -> dict[str, Any]:
    made = pick.choice(LEAVES if depth == 0 else [*LEAVES, *NESTED, *NESTED])(pick, depth)
    if pick.random() < 0.2:
        made = {"title": "T", "description": "d", "default": None, "examples": [1], **made}
    return made


def _text(pick: random.Random, _: int) -> dict[str, Any]:
    least = pick.randrange(4)
    return {"type": "string", "minLength": least, "maxLength": least + pick.randrange(1, 12)}


def _pattern(pick: random.Random, _: int) -> dict[str, Any]:
    return {"type": "string", "pattern": pick.choice(PATTERNS), "maxLength": 12}


def _format(pick: random.Random, _: int) -> dict[str, Any]:
    return {"type": "string", "format": pick.choice(FORMATS)}


def _whole(pick: random.Random, _: int) -> dict[str, Any]:
    least = pick.randrange(-50, 900)
    limits: dict[str, Any] = {
        "minimum": least,
        pick.choice(["maximum", "exclusiveMaximum"]): least + pick.randrange(9, 400),
    }
    return {"type": "integer", **limits, **pick.choice([{}, {}, {"multipleOf": pick.choice([2, 3, 5])}])}


def _number(pick: random.Random, _: int) -> dict[str, Any]:
    return {"type": "number", "exclusiveMinimum": pick.choice([-1.5, 0, 0.25]), "maximum": pick.choice([2, 10.5, 1000])}


def _plain(pick: random.Random, _: int) -> dict[str, Any]:
    return {"type": pick.choice(["boolean", "null", "integer", ["null", "boolean"], ["integer", "null"]])}


def _enum(pick: random.Random, _: int) -> dict[str, Any]:
    return {"enum": pick.sample([1, -2.5, "one", "zwölf", None, True, [1, {"a": 2}], {"b": []}, "", 'q"uote\\'], 4)}


def _const(pick: random.Random, _: int) -> dict[str, Any]:
    return {"const": pick.choice([0, "fixed", [1, 2], {"k": "v"}, None])}


def _list(pick: random.Random, depth: int) -> dict[str, Any]:
    least = pick.randrange(3)
    return {"type": "array", "items": _any(pick, depth - 1), "minItems": least, "maxItems": least + pick.randrange(3)}


def _tuple(pick: random.Random, depth: int) -> dict[str, Any]:
    places = [_any(pick, depth - 1) for _ in range(pick.randrange(1, 3))]
    rest = pick.choice([False, {"type": "integer"}])
    return {"type": "array", "prefixItems": places, "items": rest, "maxItems": len(places) + 1, "minItems": 1}


def _object(properties: dict[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    names = [*properties] if required is None else [*required]
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def _record(pick: random.Random, depth: int) -> dict[str, Any]:
    names = pick.sample(WORDS, pick.randrange(1, 4))
    properties = {name: _any(pick, depth - 1) for name in names}
    return _object(properties, pick.sample(names, pick.randrange(len(names) + 1)))


def _mapping(pick: random.Random, depth: int) -> dict[str, Any]:
    if pick.random() < 0.5:
        return {
            "type": "object",
            "patternProperties": {"^[ab]{1,2}$": _any(pick, 0)},
            "additionalProperties": False,
            "maxProperties": 2,
        }
    return {"type": "object", "additionalProperties": _any(pick, depth - 1), "minProperties": 1, "maxProperties": 2}


def _either(pick: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [_any(pick, depth - 1) for _ in range(pick.randrange(2, 4))]}


def _one(pick: random.Random, depth: int) -> dict[str, Any]:
    kinds = [_object({"kind": {"const": name}, "value": _any(pick, depth - 1)}) for name in pick.sample(WORDS, 2)]
    return {"oneOf": kinds}


def _both(pick: random.Random, _: int) -> dict[str, Any]:
    return {"allOf": [{"type": "integer", "minimum": pick.randrange(9)}, {"maximum": pick.randrange(20, 90)}]}


LEAVES: list[Callable[[random.Random, int], dict[str, Any]]] = [
    _text, _pattern, _format, _whole, _number, _plain, _enum, _const, _both,
]  # fmt: skip
NESTED: list[Callable[[random.Random, int], dict[str, Any]]] = [_list, _tuple, _record, _mapping, _either, _one]
