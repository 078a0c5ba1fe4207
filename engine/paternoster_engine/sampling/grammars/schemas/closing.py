"""Objects without other names than those of their schema, where it has no keyword for others.

By the standard any other name may come. vLLM's default compiler allows none, and OpenAI demands a schema that forbids
them: a model that may write other names often does so until its answer is cut.
"""

from paternoster_engine.sampling.grammars.schemas.keywords import IN_PLACE, REFERENCES
from paternoster_engine.sampling.grammars.schemas.objects import MAX_DEPTH, Evaluated
from paternoster_engine.sampling.grammars.schemas.part import SchemaPart

OF_OBJECTS = frozenset((
    "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames", "required",
    "minProperties", "maxProperties", "dependentRequired", "enum", "const",
))  # fmt: skip
MOST_NAMES = 400
"""Most names of schemas that apply to one value, times their options: each option is given all of the names, and has
four ways to go on for each of them (``limits.py``).
"""


def closes_options(part: SchemaPart) -> bool:
    """Whether each schema that ``part`` applies can be closed by itself: no two of them apply to one value."""
    applied = [key for key in part.schema if key in IN_PLACE]
    if len(applied) != 1 or not OF_OBJECTS.isdisjoint(part.schema):
        return False
    key, value = applied[0], part.schema[applied[0]]
    if key in ("allOf", "anyOf") and isinstance(value, list):
        return len(value) == 1 or (key == "anyOf" and part.rewriting.closing_disjointness.of_all(value))
    return key == "oneOf" or key in REFERENCES


def close_object(part: SchemaPart) -> None:
    """Allow no other names than those of ``part`` and of all schemas that it applies to the same object."""
    if "unevaluatedProperties" in part.schema or part.schema.keys().isdisjoint(("properties", *IN_PLACE)):
        return
    evaluated = Evaluated(part.rewriting, "properties")
    evaluated.add(part.schema, MAX_DEPTH, certain=True)
    names = evaluated.names | evaluated.required
    if not evaluated.names or evaluated.all or evaluated.patterns or evaluated.restricted:
        return
    if evaluated.least > len(names):
        return
    if part.schema.keys().isdisjoint(IN_PLACE):
        part.made["properties"] = dict.fromkeys(names, True) | part.made["properties"]
        part.made["additionalProperties"] = False
    elif len(names) * evaluated.options <= MOST_NAMES and not part.rewriting.has_failed:
        part.conjuncts.append({"properties": dict.fromkeys(names, True), "additionalProperties": False})
