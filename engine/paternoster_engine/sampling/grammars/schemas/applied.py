"""Keywords with schemas of the same value, and references."""

from collections.abc import Callable, Mapping
from typing import Any

from paternoster_engine.sampling.grammars.schemas.part import Part


def referring(part: Part, value: Any) -> None:
    """``$ref``, and the dynamic ones, which lead to the same place within one schema."""
    part.made["$ref"] = part.rewriting.reference(value)


def one_of(part: Part, value: Any) -> None:
    """``oneOf`` as ``anyOf``, which is the same where no value is of two options."""
    if not isinstance(value, list):
        part.made["oneOf"] = value
        return
    options = part.several("oneOf", value)
    disjointness = part.rewriting.disjointness
    if not disjointness.of_all(value):
        discriminator = part.said.get("discriminator")
        tag = disjointness.tag_of(value, discriminator)
        if tag is None:
            part.tell("oneOf")
        else:
            options = [_tagged(part, option, made, tag) for option, made in zip(value, options, strict=True)]
    if "anyOf" in part.said:
        part.conjuncts.append({"anyOf": options})
    else:
        part.made["anyOf"] = options


def _tagged(part: Part, option: Any, made: Any, tag: str) -> Any:
    """An option of objects that have the property ``tag``, by which they can be told apart."""
    if isinstance(option, Mapping) and "$ref" in option:
        return {**made, "$ref": part.rewriting.reference(option["$ref"], tag)}
    return requiring(made, tag)


def requiring(made: Any, tag: str | None) -> Any:
    """``made`` with the property ``tag`` required, where there is one."""
    if tag is None or not isinstance(made, Mapping):
        return made
    required = made.get("required", [])
    if not isinstance(required, list) or tag in required:
        return made
    return {**made, "required": [*required, tag]}


def nullable(part: Part, value: Any) -> None:
    """OpenAPI 3.0's, which has no type for ``null`` alone."""
    if value is True and part.said.get("enum") == [None]:
        part.replaced["type"] = "null"


HANDLERS: Mapping[str, Callable[[Part, Any], None]] = {
    "$ref": referring,
    "$dynamicRef": referring,
    "$recursiveRef": referring,
    "oneOf": one_of,
    "nullable": nullable,
}
