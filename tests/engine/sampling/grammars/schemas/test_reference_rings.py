"""References that lead back to themselves: refused by name, each resolved once."""

import json
from typing import Any

import pytest

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.schemas import references
from paternoster_engine.sampling.grammars.schemas.enforceable import make_enforceable


def ring(length: int, options: int, pointer: str = "#/$defs/") -> dict[str, Any]:
    """Definitions that each refer to the next one, and options that refer to them."""
    definitions = {f"a{i}": {"$ref": f"{pointer}a{(i + 1) % length}"} for i in range(length)}
    return {"oneOf": [{"$ref": f"{pointer}a{i % length}"} for i in range(options)], "$defs": definitions}


@pytest.mark.parametrize("schema", [{"$ref": "#"}, ring(1, 2), ring(2, 2), ring(20, 300)])
def test_a_ring_of_references_is_refused_by_name(schema: dict[str, Any]) -> None:
    with pytest.raises(GrammarError, match=r"\$ref '#.* leads back to itself"):
        make_enforceable(schema)


def test_a_schema_that_contains_itself_is_no_ring() -> None:
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}
    assert json.loads(json.dumps(make_enforceable(tree).schema))["properties"]["children"]["items"] == {"$ref": "#"}


@pytest.mark.parametrize("wrong", [5, None, ["#"], {"a": 1}])
def test_a_reference_to_a_reference_that_is_no_text(wrong: object) -> None:
    with pytest.raises(GrammarError, match="leads to nothing"):
        make_enforceable({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": wrong}}})


def test_each_reference_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair of options followed up to 32 references before, each a pointer of hundreds of parts."""
    resolved: list[Any] = []
    resolve = references.resolve_reference
    monkeypatch.setattr(references, "resolve_reference", lambda *args: (resolved.append(args[0]), resolve(*args))[1])
    schema = ring(31, 80)
    schema["$defs"]["a30"] = {"type": "string"}
    make_enforceable(schema)
    assert len(resolved) == len(set(resolved)) == 31
