"""Keywords whose schemas apply to the same value (``oneOf``, ``nullable``), and references."""

from collections.abc import Callable, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.schemas.part import SchemaPart


def rewrite_ref(part: SchemaPart, value: Any) -> None:
    """Rewrite ``$ref``, ``$dynamicRef`` and ``$recursiveRef``, which have the same target within one schema."""
    part.made["$ref"] = part.rewriting.write_reference(value, closed=part.closes_options)


def rewrite_one_of(part: SchemaPart, value: Any) -> None:
    """Rewrite ``oneOf`` as ``anyOf``, which allows the same values where the options are disjoint."""
    if not isinstance(value, list):
        part.made["oneOf"] = value
        return
    options = part.rewrite_list("oneOf", value)
    disjointness = part.rewriting.disjointness
    if not disjointness.of_all(value):
        discriminator = part.schema.get("discriminator")
        tag = disjointness.tag_of(value, discriminator)
        if tag is None:
            part.report_unenforced("oneOf")
        else:
            options = [_require_tag(part, option, made, tag) for option, made in zip(value, options, strict=True)]
    if "anyOf" in part.schema:
        part.conjuncts.append({"anyOf": options})
    else:
        part.made["anyOf"] = options


def _require_tag(part: SchemaPart, option: Any, made: Any, tag: str) -> Any:
    """Require the property ``tag``, which distinguishes the options, in one option."""
    if isinstance(option, Mapping) and "$ref" in option:
        return {**made, "$ref": part.rewriting.require_in_target(made["$ref"], tag)}
    return with_required(made, tag)


def with_required(made: Any, tag: str | None) -> Any:
    """Return ``made`` with the property ``tag`` required; unchanged for None."""
    if tag is None or not isinstance(made, Mapping):
        return made
    required = made.get("required", [])
    if not isinstance(required, list) or tag in required:
        return made
    return {**made, "required": [*required, tag]}


def rewrite_nullable(part: SchemaPart, value: Any) -> None:
    """Rewrite ``nullable`` of OpenAPI 3.0, which has no type for ``null`` alone."""
    if value is True and part.schema.get("enum") == [None]:
        part.replaced["type"] = "null"


HANDLERS: Mapping[str, Callable[[SchemaPart, Any], None]] = {
    "$ref": rewrite_ref,
    "$dynamicRef": rewrite_ref,
    "$recursiveRef": rewrite_ref,
    "oneOf": rewrite_one_of,
    "nullable": rewrite_nullable,
}
