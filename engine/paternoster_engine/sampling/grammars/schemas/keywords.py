"""Keywords of JSON schema, by what becomes of them."""

KEPT = frozenset((
    "$schema", "type", "const", "enum", "minLength", "maxLength", "minItems", "maxItems", "required", "minimum",
    "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minProperties", "maxProperties",
))  # fmt: skip
"""That llguidance enforces, and that have no schemas within."""
OF_ONE = frozenset({"additionalProperties", "items", "additionalItems"})
"""With a schema, or a list of them in earlier drafts, that llguidance enforces."""
OF_SEVERAL = frozenset({"allOf", "anyOf", "prefixItems"})
"""With a list of schemas that llguidance enforces."""
OF_NAMED = frozenset({"properties", "patternProperties"})
"""With schemas by names that llguidance enforces."""
NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
IN_PLACE = ("allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if", "then", "else", "dependentSchemas")
"""With schemas of the same value."""
ANNOTATIONS = frozenset((
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment",
    "contentMediaType", "contentEncoding", "contentSchema",
))  # fmt: skip
