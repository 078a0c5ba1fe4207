"""The state of rewriting one root: what is told, and which definitions its references need."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.schemas.disjoint import Disjointness
from paternoster_engine.sampling.grammars.schemas.references import References

Path = tuple[str, ...]


class Tried(NamedTuple):
    """What is known once a grammar of the schema has failed."""

    compiles: Callable[[Mapping[str, Any]], bool]
    """Whether llguidance takes a schema: asked of each expression, bound and set of patterns."""
    left_out: frozenset[str] = frozenset()
    """Keywords that are annotations wherever they are."""
    circular: bool = False
    """Whether references stand alone: llguidance takes no assertions beside those that lead to themselves."""


MOST_TOLD = 64
"""Keywords of one schema that are told."""
MOST_SPLITS = 4
"""Conditions of one schema that become alternatives: each may double how many there are."""
MOST_LOOKED = 2_000
"""Schemas that are looked at for what others have evaluated, for all of one root."""
PLAIN_DEFINITIONS = ("#/$defs/", "#/definitions/")


class Unenforced(NamedTuple):
    """A keyword that no answer is held to."""

    path: Path
    """Of the schema that has it, from the root."""
    keyword: str
    asserts: bool = True
    """False for an annotation by the standard, which a strict schema may have, too."""


class Rewriting:
    """Of one root."""

    def __init__(
        self, root: Any, rewritten: "Callable[[Rewriting, Mapping[str, Any], Path], Any]", tried: Tried | None
    ) -> None:
        """``rewritten``: makes another of a part, with its path."""
        self._rewritten = rewritten
        self._tried = tried
        self.references = References(root)
        self.disjointness = Disjointness(self.references)
        self.unenforced: dict[Unenforced, None] = {}
        self._names: dict[tuple[str, str | None], str] = {}
        self._taken: set[str] = set()
        self._taken: set[str] = set()
        self.waiting: list[tuple[str, str, str | None]] = []
        """Definitions to be made: names, references, and properties that they require."""
        self._splits = 0
        self._looked = 0
        self.left_out = frozenset() if tried is None else tried.left_out
        self.circular = tried is not None and tried.circular

    def tell(self, path: Path, keyword: str, *, asserts: bool = True) -> None:
        if len(self.unenforced) < MOST_TOLD:
            self.unenforced[Unenforced(path, keyword, asserts)] = None

    def schema(self, said: Any, path: Path) -> Any:
        """``said``, a part of the root, rewritten; False where nothing is of it."""
        return self._rewritten(self, said, path) if isinstance(said, Mapping) else said

    def takes(self, schema: Mapping[str, Any]) -> bool:
        """Whether llguidance does, where that is tried."""
        return self._tried is None or self._tried.compiles(schema)

    def may_split(self) -> bool:
        """Whether one more condition may become alternatives: none does where that may be why a grammar failed."""
        self._splits += self._tried is None
        return self._tried is None and self._splits <= MOST_SPLITS

    def may_look(self) -> bool:
        """Whether one more schema may be looked at for what it evaluates."""
        self._looked += 1
        return self._looked <= MOST_LOOKED

    @property
    def split(self) -> bool:
        """Whether some have."""
        return self._splits > 0

    def reference(self, reference: Any, tag: str | None = None) -> str:
        """A ``$ref`` to what ``reference`` leads to, with the property ``tag`` required.

        Raises :class:`GrammarError` where that is nothing.
        """
        if not isinstance(reference, str) or self.references.target(reference) is None:
            raise GrammarError(f"$ref {reference!r:.60} leads to nothing: it must be within the schema")
        if reference == "#" and tag is None:
            return "#"
        if (reference, tag) not in self._names:
            name = _name_of(reference) if tag is None else None
            if name is None or name in self._taken:
                name = f"ref{len(self._names)}"
                while name in self._taken:
                    name += "_"
            self._taken.add(name)
            self._names[reference, tag] = name
            self.waiting.append((name, reference, tag))
        return f"#/$defs/{self._names[reference, tag]}"


def _name_of(reference: str) -> str | None:
    """What a plain definition is called."""
    for begin in PLAIN_DEFINITIONS:
        name = reference.removeprefix(begin)
        if name != reference and not set(name) & set("/%~"):
            return name
    return None
