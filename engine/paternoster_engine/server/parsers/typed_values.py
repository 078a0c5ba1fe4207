"""Arguments that are written as plain text, made what a tool's schema says they are."""

import ast
import json
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

MAX_REFERENCES = 8
"""That one leads to the other."""
_PYTHON = {"True": True, "False": False, "None": None}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}


def json_of(text: str, name: str, schema: Mapping[str, Any]) -> str:
    """The argument ``name`` of a tool whose arguments are of ``schema``, as JSON; text where it is nothing else."""
    properties = schema.get("properties")
    said = properties.get(name) if isinstance(properties, Mapping) else None
    if said is None:
        said = schema.get("additionalProperties")
    types = set(_types(said, schema, MAX_REFERENCES))
    return json.dumps(_value(text, types), ensure_ascii=False)


def _value(text: str, types: set[str]) -> Any:
    if types == {"string"}:
        return text
    value = _literal(text.strip())
    for name in types - {"string"} or _TYPES.keys() - {"string"}:
        if isinstance(value, bool) and name != "boolean":
            continue
        if isinstance(value, _TYPES[name]):
            return value
        if name == "integer" and isinstance(value, float) and value.is_integer():
            return int(value)
    return text


def _types(said: Any, root: Mapping[str, Any], left: int) -> Iterator[str]:
    """Names of types that a value may have, none where the schema does not say."""
    if not isinstance(said, Mapping) or left == 0:
        return
    named = said.get("type")
    if named is not None:
        names = named if isinstance(named, list) else [named]
        yield from (name for name in names if isinstance(name, str) and name in _TYPES)
        return
    values = said["enum"] if isinstance(said.get("enum"), list) else [said[key] for key in ("const",) if key in said]
    for value in values:
        yield next(name for name, kinds in _TYPES.items() if isinstance(value, kinds))
    for key in ("anyOf", "oneOf", "allOf"):
        options = said.get(key)
        for option in options if isinstance(options, list) else ():
            yield from _types(option, root, left - 1)
    yield from _types(_referred(said.get("$ref"), root), root, left - 1)


def _referred(reference: Any, root: Mapping[str, Any]) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: Any = root
    for key in reference[2:].split("/"):
        found = found.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def _literal(text: str) -> Any:
    """What JSON says, or Python, which models write as well; the text where it is neither."""
    if text in _PYTHON:
        return _PYTHON[text]
    for read in (_from_json, _from_python):
        try:
            value = read(text)
            # What cannot be said in JSON again: lone surrogates, infinities, keys that are no text.
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
        return value
    return text


def _from_json(text: str) -> Any:
    return json.loads(text)


def _from_python(text: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = ast.literal_eval(text)
    if not isinstance(value, list | dict):
        raise ValueError
    return value
