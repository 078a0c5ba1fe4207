"""Rewrite a tool's schema into what can be enforced, which depends on how a format writes arguments."""

from collections.abc import Iterator, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.json_schema import resolve_reference
from paternoster_engine.sampling.grammars.schemas.enforceable import Enforceable, make_enforceable
from paternoster_engine.sampling.grammars.schemas.rewriting import CompileFailure, Unenforced
from paternoster_engine.server.parsers.arguments.json_object import OF_OBJECTS, Arguments
from paternoster_engine.server.parsers.arguments.named import NamedArguments
from paternoster_engine.server.parsers.arguments.patterns import match_whole

MAX_PARTS = 64
"""Most schemas of the whole object, through ``allOf`` and ``$ref``, that are merged into one."""


def enforce_arguments(arguments: Arguments, schema: Mapping[str, Any]) -> Enforceable:
    """Rewrite ``schema`` for grammars of ``arguments``. Raises :class:`GrammarError` where no arguments satisfy it."""
    named = isinstance(arguments, NamedArguments)
    made = make_enforceable(schema, CompileFailure(_is_plain) if named else None)
    if not isinstance(made.schema, Mapping):
        raise GrammarError("no arguments are of this schema")
    return _merge_schemas(made) if named else made


def _is_plain(schema: Mapping[str, Any]) -> bool:
    """Whether a ``pattern`` can be enforced in a string that is written without quotes."""
    if "pattern" not in schema:
        return True
    try:
        match_whole(schema["pattern"])
    except GrammarError:
        return False
    return True


def _merge_schemas(made: Enforceable) -> Enforceable:
    """Merge the schemas of the object into one list of properties, since each argument is written by itself."""
    properties: dict[str, Any] = {}
    required: dict[str, None] = {}
    rest: dict[str, Any] = {}
    left_out: dict[str, None] = {}
    closing: list[set[str]] = []
    """Names of each schema that allows no others."""
    for i, part in enumerate(_applied_schemas(made.schema)):
        for name, schema in _mapping_at(part, "properties").items():
            earlier = properties.get(name)
            properties[name] = schema if earlier in (None, True) else {"allOf": [earlier, schema]}
        if isinstance(part.get("required"), list):
            required |= dict.fromkeys(name for name in part["required"] if isinstance(name, str))
        if part.get("additionalProperties") is False and i > 0:
            closing.append({*_mapping_at(part, "properties")})
        rest |= {key: part[key] for key in ("type", "additionalProperties") if key in part and key not in rest}
        left_out |= dict.fromkeys(key for key in OF_OBJECTS if key in part and key not in ("$ref", "allOf"))
    if not all(names >= properties.keys() for names in closing):
        left_out["allOf"] = None
    whole_schema = rest | ({"properties": properties} if properties else {})
    whole_schema |= {"required": list(required)} if required else {}
    whole_schema |= {key: made.schema[key] for key in ("$defs",) if key in made.schema}
    keywords = dict.fromkeys((*made.unenforced, *(Unenforced((), key) for key in left_out)))
    return Enforceable(whole_schema, tuple(keywords))


def _mapping_at(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = schema.get(key)
    return value if isinstance(value, Mapping) else {}


def _applied_schemas(root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield ``root`` and the schemas that it applies to the same object, through ``allOf`` and ``$ref``."""
    left, count = [root], 0
    while left:
        part = left.pop(0)
        count += 1
        if count > MAX_PARTS:
            raise GrammarError(f"more than {MAX_PARTS} schemas of all arguments together")
        if isinstance(part, Mapping):
            yield part
            left += part["allOf"] if isinstance(part.get("allOf"), list) else []
            left += [resolve_reference(part["$ref"], root)] if "$ref" in part else []
