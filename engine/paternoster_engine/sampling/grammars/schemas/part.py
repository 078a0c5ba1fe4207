"""One schema while it is rewritten: the state that the handlers of its keywords share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from paternoster_engine.sampling.grammars.schemas.keywords import IN_PLACE

if TYPE_CHECKING:
    from paternoster_engine.sampling.grammars.schemas.rewriting import Rewriting


class SchemaPart:
    """The schema at ``path`` of the root, and what its handlers have rewritten so far."""

    def __init__(self, rewriting: "Rewriting", schema: Mapping[str, Any], path: tuple[str, ...]) -> None:
        self.rewriting = rewriting
        self.schema = schema
        self.path = path
        self.made: dict[str, Any] = {}
        self.replaced: dict[str, Any] = {}
        """Keywords that replace those of the same name in :attr:`made`."""
        self.conjuncts: list[Any] = []
        """Further schemas that a value must satisfy, added as ``allOf``."""
        self.unsatisfiable = False
        self.closes_options = False
        """Whether each schema that is applied to the same value is closed by itself."""

    def report_unenforced(self, keyword: str, *, asserts: bool = True) -> None:
        """Report ``keyword`` of this schema as not enforced."""
        self.rewriting.report_unenforced(self.path, keyword, asserts=asserts)

    def rewrite_within(self, schema: Any, *path: str) -> Any:
        """Rewrite ``schema``, which is at ``path`` of this one."""
        closed = self.closes_options or path[0] not in IN_PLACE
        return self.rewriting.rewrite_schema(schema, (*self.path, *path), closed=closed)

    def rewrite_list(self, key: str, value: Any) -> Any:
        """Rewrite each schema of a list; return anything else unchanged."""
        if not isinstance(value, list):
            return value
        return [self.rewrite_within(part, key, str(i)) for i, part in enumerate(value)]

    def rewrite_named(self, key: str, value: Any) -> Any:
        """Rewrite each schema of a mapping; return anything else unchanged."""
        if not isinstance(value, Mapping):
            return value
        return {name: self.rewrite_within(part, key, name) for name, part in value.items()}

    def add_pattern(self, pattern: str) -> None:
        """Require ``pattern`` besides the patterns that are required already."""
        if "pattern" in self.made:
            self.conjuncts.append({"pattern": pattern})
        else:
            self.made["pattern"] = pattern

    def may_be(self, kind: str) -> bool:
        """Whether a value may be of the type ``kind``."""
        types = self.schema.get("type", kind)
        return bool(types == kind or (isinstance(types, list) and kind in types))

    def result(self) -> Any:
        """The rewritten schema; False where no value satisfies it."""
        if self.unsatisfiable:
            return False
        made = self.made | self.replaced
        if self.conjuncts:
            parts = made.get("allOf", [])
            made["allOf"] = [*parts, *self.conjuncts] if isinstance(parts, list) else parts
        return made
