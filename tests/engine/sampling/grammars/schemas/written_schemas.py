"""Schemas as people and OpenAPI documents write them, each with the keywords of it that no answer is held to."""

from typing import Any

STR, INT = {"type": "string"}, {"type": "integer"}


def _one(keywords: dict[str, Any], **root: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": keywords}, "required": ["a"], "additionalProperties": False, **root}


def _text(**keywords: Any) -> dict[str, Any]:
    return _one({"type": "string", **keywords})


def _list(**keywords: Any) -> dict[str, Any]:
    return _one({"type": "array", **keywords})


KINDS = {"type": "object", "properties": {"kind": {"enum": ["a", "b", "c"]}, "x": INT, "y": STR}, "required": ["kind"],
         "additionalProperties": False}  # fmt: skip
PETS = {
    "Cat": {"type": "object", "required": ["petType"], "properties": {"petType": {"enum": ["cat"]}, "name": STR}},
    "Dog": {"type": "object", "properties": {"petType": {"type": "string", "enum": ["dog"]}, "bark": STR}},
}
ENFORCED: dict[str, dict[str, Any]] = {
    "not anything": _list(items={"not": {}}),
    "not of a type": _one({"type": ["string", "null"], "not": {"type": "null"}}),
    "not one of texts": _text(maxLength=3, **{"not": {"enum": ["a", "bc"]}}),
    "not with a property": {"type": "object", "properties": {"a": STR, "b": STR}, "not": {"required": ["a"]}},
    "if of a kind": {
        **KINDS, "if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["x"]},
        "else": {"required": ["y"]},
    },
    "two ifs": {
        **KINDS,
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": {"required": [name]}}
            for kind, name in (("a", "x"), ("b", "y"))
        ],
    },
    "dependentRequired": {
        "type": "object", "properties": {"card": STR, "street": STR, "zip": INT}, "additionalProperties": False,
        "dependentRequired": {"card": ["street", "zip"]},
    },
    "dependentSchemas": {"type": "object", "dependentSchemas": {"a": {"properties": {"b": INT}, "required": ["b"]}},
                         "properties": {"a": STR}},
    "dependencies": {"type": "object", "properties": {"a": STR, "b": STR}, "dependencies": {"a": ["b"]}},
    "unevaluatedProperties": {"allOf": [{"type": "object", "properties": {"a": INT}, "required": ["a"]}],
                              "properties": {"b": STR}, "unevaluatedProperties": False},
    "unevaluatedProperties beside allOf": {
        "allOf": [{"type": "object", "properties": {"a": INT}}], "$ref": "#/$defs/b", "unevaluatedProperties": False,
        "$defs": {"b": {"properties": {"b": STR}, "required": ["b"]}},
    },
    "one property or more": _one({"type": "object", "properties": {"x": INT, "y": INT}, "minProperties": 1}),
    "unevaluatedItems": _list(prefixItems=[STR, INT], unevaluatedItems=False),
    "contains of anything": _list(contains=True, minContains=2, maxContains=3, items=INT),
    "propertyNames of a pattern": _one({"type": "object", "propertyNames": {"pattern": "^[a-z]{1,3}$"},
                                        "additionalProperties": INT}),
    "unique, of one": _list(uniqueItems=True, maxItems=1, items=INT),
    "oneOf of OpenAPI": {"oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
                         "discriminator": {"propertyName": "petType"}, "components": {"schemas": PETS}},
    "nullable": _one({"type": "string", "nullable": True, "enum": ["a", None]}),
    "byte": _text(format="byte"), "int32": _one({"type": "integer", "format": "int32"}),
    "int64": _one({"type": "integer", "format": "int64"}), "double": _one({"type": "number", "format": "double"}),
    "contentEncoding": _text(contentEncoding="base64", contentMediaType="image/png"),
    "the largest double": _one({"type": "number", "minimum": -1.7976931348623157e308, "maximum": 1.79769e308}),
    "anchor": _one({"$ref": "#number"}, **{"$defs": {"x": {"$anchor": "number", "type": "integer"}}}),
    "id": _one({"$ref": "https://example.com/x"}, **{"$defs": {"x": {"$id": "https://example.com/x", **INT}}}),
    "escaped pointer": _one({"$ref": "#/$defs/a~1b~0c%20d"}, **{"$defs": {"a/b~c d": INT}}),
    "pointer into oneOf": _one({"oneOf": [INT, STR]}, x=1) | {
        "properties": {"a": {"oneOf": [INT, STR]}, "b": {"$ref": "#/properties/a/oneOf/0"}},
    },
    "dynamicRef": {"$dynamicAnchor": "node", "type": "object", "required": ["v"],
                   "properties": {"v": INT, "c": {"type": "array", "items": {"$dynamicRef": "#node"}}}},
    "Decimal of pydantic 2.12": _text(pattern=r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"),
    "email of zod 4.1": _text(pattern=r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*"
                              r"\.)+[A-Za-z]{2,}$"),
    "password": _text(pattern=r"^(?=.*\d)(?=.*[a-z]).{4,8}$"), "no root": _text(pattern="^(?!(?:admin|root)$)[a-z]+$"),
    "unicode classes": _text(pattern=r"^\p{Lu}\p{Ll}+$"), "class with a bracket": _text(pattern=r"^[a-z[\]]{2,9}$"),
}  # fmt: skip
"""Schemas of which every keyword is enforced."""
UNENFORCED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "uniqueItems": (_list(items=INT, uniqueItems=True), ["properties.a.uniqueItems"]),
    "not": (_one({"type": "object", "not": {"properties": {"x": INT}}}), ["properties.a.not"]),
    "if": (_one({"type": "integer", "if": {"minimum": 10}, "then": {"multipleOf": 10}}), ["properties.a.if"]),
    "contains": (_list(contains={"const": 1}), ["properties.a.contains"]),
    "six dependents": (
        {"type": "object", "properties": dict.fromkeys("abcdefg", INT), "additionalProperties": False,
         "dependentRequired": {name: ["g"] for name in "abcdef"}}, ["dependentRequired"],
    ),
    "unevaluatedProperties of options": (
        {"type": "object", "anyOf": [{"properties": {"a": INT}, "required": ["a"]}, {"properties": {"b": STR}}],
         "unevaluatedProperties": False}, ["unevaluatedProperties"],
    ),
    "propertyNames beside properties": (
        _one({"type": "object", "properties": {"ok": INT}, "propertyNames": {"pattern": "^[a-z]+$"}}),
        ["properties.a.propertyNames"],
    ),
    "minProperties": (_one({"type": "object", "properties": {"x": INT, "y": INT}, "minProperties": 2}),
                      ["properties.a.minProperties"]),
    "minProperties of a part": (
        {"allOf": [{"type": "object", "properties": {"x": INT, "y": INT}}, {"minProperties": 2}]},
        ["allOf.1.minProperties"],
    ),
    "patterns of names that overlap": (
        _one({"type": "object", "patternProperties": {"^a": INT, "b$": INT}, "additionalProperties": False}),
        ["properties.a.additionalProperties", "properties.a.patternProperties"],
    ),
    "oneOf of numbers": (_one({"oneOf": [{"type": "integer"}, {"type": "number"}]}), ["properties.a.oneOf"]),
    "backreference": (_text(pattern=r"^(a)\1$"), ["properties.a.pattern"]),
    "look-behind": (_text(pattern="(?<=a)b"), ["properties.a.pattern"]),
    "edge of a word within": (_text(pattern=r"a\b.b"), ["properties.a.pattern"]),
    "beginning within": (_text(pattern="x(^a|b$)"), ["properties.a.pattern"]),
    "unknown class": (_text(pattern=r"^\p{Foo}$"), ["properties.a.pattern"]),
    "no bound of a double": (_one({"type": "number", "minimum": 1e30}), ["properties.a.minimum"]),
    "a long multiple": (_one({"type": "number", "multipleOf": 1e10}), ["properties.a.multipleOf"]),
    "a length beyond 32 bits": (_text(maxLength=5_000_000_000), ["properties.a.maxLength"]),
    "circular reference with more": (
        {"$defs": {"N": {"type": "object", "additionalProperties": False, "properties": {
            "v": INT, "n": {"anyOf": [{"$ref": "#/$defs/N", "required": ["v"]}, {"type": "null"}]}}}},
         "$ref": "#/$defs/N"}, ["$defs.N.properties.n.anyOf.0.required"],
    ),
    "unknown format": (_text(format="fancy"), ["properties.a.format"]),
    "regex": (_text(format="regex"), ["properties.a.format"]),
}  # fmt: skip
"""With paths of what is not."""
