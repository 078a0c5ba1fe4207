"""Cost of one token for a parser, estimated from a grammar's text: llguidance counts it only after the token."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from paternoster_engine.sampling.grammars.json_schema import resolve_reference

LARK_TOKEN = re.compile(
    r'(?P<json>%json\s*)|"(?:\\.|[^"\\])*"|(?://|#)[^\n]*|/(?:\\.|[^/\\])+/|'
    r"[!?]{0,2}(?P<rule>_?[a-z][_a-z0-9-]*)(?P<begins>(?:\[[^\]]*\]|\.-?[0-9]+)*\s*:)?|[A-Z][_A-Z0-9-]*|(?P<way>[|?*+{~])",
    re.DOTALL,
)
"""Tokens of Lark as llguidance splits it. Tokens without a name or text do not add to the cost."""
JSON_DECODER = json.JSONDecoder()
ALTERNATIVE_KEYWORDS = ("anyOf", "oneOf")


class ParserCost:
    """Sums over the rules of a grammar."""

    def __init__(self) -> None:
        self._size = 0
        self._ends = 0

    @classmethod
    def estimate_items(cls, grammar: str) -> int:
        """Count the items that a parser may visit for one token.

        Each way in which a rule may end continues at each place that waits for it, and is compared with each item.

        ``grammar``: of llguidance; what is none may have any number, or raise ``ValueError``.
        """
        work = cls()
        if not grammar.lstrip().startswith("{"):
            work._add_lark(grammar)
        else:
            for part in json.loads(grammar)["grammars"]:
                if part.get("lark_grammar"):
                    work._add_lark(part["lark_grammar"])
                if part.get("json_schema"):
                    work._add_schema(part["json_schema"])
        return work._size * work._ends

    def _add_lark(self, text: str) -> None:
        ways: Counter[str] = Counter()
        uses: Counter[str] = Counter()
        rule, at = "", 0
        while found := LARK_TOKEN.search(text, at):
            at = found.end()
            self._size += 1
            if found["json"]:
                schema, at = JSON_DECODER.raw_decode(text, at)
                self._add_schema(schema)
            elif found["begins"]:
                rule = found["rule"]
                ways[rule] += 1
            elif found["rule"]:
                uses[found["rule"]] += 1
            elif found["way"]:
                ways[rule] += 1
        self._ends += sum(ways[name] * uses[name] for name in ways)

    def _add_schema(self, root: Any) -> None:
        """Parts that are resolve_reference to are rules, all others are used once."""
        uses: Counter[str] = Counter()
        options = 0
        for part in _iterate_objects(root):
            self._size += 1
            options += sum(len(part[key]) for key in ALTERNATIVE_KEYWORDS if isinstance(part.get(key), list))
            if isinstance(part.get("$ref"), str):
                uses[part["$ref"]] += 1
        for reference, count in uses.items():
            target = resolve_reference(reference, root)
            self._ends += count * (max(options, 1) if target is None else _count_endings(target))


def _iterate_objects(root: Any) -> Iterator[Mapping[str, Any]]:
    left = [root]
    while left:
        part = left.pop()
        if isinstance(part, Mapping):
            yield part
            left += part.values()
        elif isinstance(part, list):
            left += part


def _count_endings(schema: Any) -> int:
    """In how many ways a value of ``schema`` may end, at least 1."""
    if not isinstance(schema, Mapping):
        return 1
    lists = {key: schema[key] for key in (*ALTERNATIVE_KEYWORDS, "allOf") if isinstance(schema.get(key), list)}
    types = schema.get("type")
    chosen = [sum(map(_count_endings, lists[key])) for key in ALTERNATIVE_KEYWORDS if key in lists]
    return (
        prod([*chosen, *map(_count_endings, lists.get("allOf", [])), len(types) if isinstance(types, list) else 1]) or 1
    )
