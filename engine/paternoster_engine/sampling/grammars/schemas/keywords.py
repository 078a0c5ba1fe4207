"""Keywords of JSON schema, by how they are rewritten."""

ENFORCED = frozenset((
    "$schema", "type", "const", "enum", "minLength", "maxLength", "minItems", "maxItems", "required", "minimum",
    "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minProperties", "maxProperties",
))  # fmt: skip
"""Enforced by llguidance, without schemas inside."""
OF_ONE = frozenset({"additionalProperties", "items", "additionalItems"})
"""Enforced by llguidance, with one schema inside, or a list of them in earlier drafts."""
OF_SEVERAL = frozenset({"allOf", "anyOf", "prefixItems"})
"""Enforced by llguidance, with a list of schemas inside."""
OF_NAMED = frozenset({"properties", "patternProperties"})
"""Enforced by llguidance, with schemas by name inside."""
NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
IN_PLACE = ("allOf", "anyOf", "oneOf", *REFERENCES, "if", "then", "else", "dependentSchemas", "dependencies")
"""With schemas that apply to the same value."""
ANNOTATIONS = frozenset((
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment",
    "contentMediaType", "contentEncoding", "contentSchema",
))  # fmt: skip
