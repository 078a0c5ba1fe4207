"""One schema on its way to another: what its handlers of keywords share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paternoster_engine.sampling.grammars.schemas.rewriting import Rewriting


class Part:
    """A schema ``said`` at ``path`` of the root."""

    def __init__(self, rewriting: "Rewriting", said: Mapping[str, Any], path: tuple[str, ...]) -> None:
        self.rewriting = rewriting
        self.said = said
        self.path = path
        self.made: dict[str, Any] = {}
        self.replaced: dict[str, Any] = {}
        """Keywords in place of those that :attr:`made` has of that name."""
        self.conjuncts: list[Any] = []
        """What a value is of besides."""
        self.unsatisfiable = False

    def tell(self, keyword: str, *, asserts: bool = True) -> None:
        """``keyword`` is not enforced."""
        self.rewriting.tell(self.path, keyword, asserts=asserts)

    def within(self, said: Any, *path: str) -> Any:
        """A schema within this one, rewritten."""
        return self.rewriting.schema(said, (*self.path, *path))

    def several(self, key: str, value: Any) -> Any:
        """A list of schemas, rewritten; anything else as it is."""
        if not isinstance(value, list):
            return value
        return [self.within(part, key, str(i)) for i, part in enumerate(value)]

    def named(self, key: str, value: Any) -> Any:
        """Schemas by names, rewritten; anything else as it is."""
        if not isinstance(value, Mapping):
            return value
        return {name: self.within(part, key, name) for name, part in value.items()}

    def add_pattern(self, pattern: str) -> None:
        if "pattern" in self.made:
            self.conjuncts.append({"pattern": pattern})
        else:
            self.made["pattern"] = pattern

    def may_be(self, kind: str) -> bool:
        """Whether a value may be of the type ``kind``."""
        types = self.said.get("type", kind)
        return bool(types == kind or (isinstance(types, list) and kind in types))

    def whole(self) -> Any:
        """What was made, with all that is said besides."""
        if self.unsatisfiable:
            return False
        made = self.made | self.replaced
        if self.conjuncts:
            parts = made.get("allOf", [])
            made["allOf"] = [*parts, *self.conjuncts] if isinstance(parts, list) else parts
        return made
