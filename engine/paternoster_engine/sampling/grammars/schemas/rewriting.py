"""The state of rewriting one root schema: keywords that are not enforced, and definitions that its references need."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from paternoster_engine.sampling.grammars.errors import GrammarError
from paternoster_engine.sampling.grammars.schemas.disjoint import Disjointness
from paternoster_engine.sampling.grammars.schemas.references import References

Path = tuple[str, ...]


class CompileFailure(NamedTuple):
    """How to rewrite a schema again after llguidance failed to compile the first grammar of it."""

    compiles: Callable[[Mapping[str, Any]], bool]
    """Whether llguidance compiles a schema: called with each expression, bound and set of patterns by itself."""
    left_out: frozenset[str] = frozenset()
    """Keywords to treat as annotations wherever they are."""
    circular: bool = False
    """Whether keywords beside a ``$ref`` are left out: llguidance compiles none beside a reference to itself."""


MAX_UNENFORCED = 64
"""Keywords of one schema that are reported as not enforced."""
MAX_SPLITS = 4
"""Conditions of one schema that become alternatives: each may double their number."""
MAX_VISITED = 2_000
"""Schemas of one root that :meth:`Rewriting.may_visit` allows to be searched for evaluated properties."""
PLAIN_DEFINITIONS = ("#/$defs/", "#/definitions/")


class Unenforced(NamedTuple):
    """A keyword that the grammar does not enforce, so that answers may break it."""

    path: Path
    """Path from the root to the schema that has the keyword."""
    keyword: str
    asserts: bool = True
    """False for an annotation by the standard, which a strict schema may have, too."""


class Rewriting:
    """The rewriting of one root schema and of the definitions that it refers to."""

    def __init__(
        self,
        root: Any,
        rewrite_part: "Callable[[Rewriting, Mapping[str, Any], Path], Any]",
        failure: CompileFailure | None,
    ) -> None:
        """``rewrite_part``: rewrites one schema at its path. ``failure``: None at the first attempt."""
        self._rewrite_part = rewrite_part
        self._failure = failure
        self.references = References(root)
        self.disjointness = Disjointness(self.references)
        self.unenforced: dict[Unenforced, None] = {}
        self._names: dict[tuple[str, str | None], str] = {}
        self._taken_names: set[str] = set()
        self.waiting: list[tuple[str, str, str | None]] = []
        """Definitions that are still to be rewritten: name, reference, and a property that the definition requires."""
        self._splits = 0
        self._visited = 0
        self.left_out = frozenset() if failure is None else failure.left_out
        self.circular = failure is not None and failure.circular

    def report_unenforced(self, path: Path, keyword: str, *, asserts: bool = True) -> None:
        """Add to :attr:`unenforced`, of which there are at most :data:`MAX_UNENFORCED`."""
        if len(self.unenforced) < MAX_UNENFORCED:
            self.unenforced[Unenforced(path, keyword, asserts)] = None

    def rewrite_schema(self, schema: Any, path: Path) -> Any:
        """Rewrite ``schema``, a part of the root; returns False where no value satisfies it."""
        return self._rewrite_part(self, schema, path) if isinstance(schema, Mapping) else schema

    def compiles_schema(self, schema: Mapping[str, Any]) -> bool:
        """Whether llguidance compiles ``schema``; assumed until a grammar has failed."""
        return self._failure is None or self._failure.compiles(schema)

    def may_split(self) -> bool:
        """Count one more condition that becomes alternatives; False once they may be why a grammar failed."""
        self._splits += self._failure is None
        return self._failure is None and self._splits <= MAX_SPLITS

    def may_visit(self) -> bool:
        """Count one more schema that is searched for evaluated properties; False when there are too many."""
        self._visited += 1
        return self._visited <= MAX_VISITED

    @property
    def split(self) -> bool:
        """Whether some condition became alternatives."""
        return self._splits > 0

    def write_reference(self, reference: Any, tag: str | None = None) -> str:
        """Return a ``$ref`` to the rewritten target of ``reference``, in which the property ``tag`` is required.

        Raises :class:`GrammarError` for a reference without a target, and for one that leads to itself.
        """
        if not isinstance(reference, str) or self.references.find_target(reference) is None:
            raise GrammarError(f"$ref {reference!r:.60} leads to nothing: it must be within the schema")
        if self.references.leads_back(reference):
            raise GrammarError(f"$ref {reference!r:.60} leads back to itself, and no schema says what a value is")
        if reference == "#" and tag is None:
            return "#"
        if (reference, tag) not in self._names:
            name = _name_of(reference) if tag is None else None
            if name is None or name in self._taken_names:
                name = f"ref{len(self._names)}"
                while name in self._taken_names:
                    name += "_"
            self._taken_names.add(name)
            self._names[reference, tag] = name
            self.waiting.append((name, reference, tag))
        return f"#/$defs/{self._names[reference, tag]}"


def _name_of(reference: str) -> str | None:
    """The name of a definition right below ``$defs`` or ``definitions``; None for any other reference."""
    for begin in PLAIN_DEFINITIONS:
        name = reference.removeprefix(begin)
        if name != reference and not set(name) & set("/%~"):
            return name
    return None
