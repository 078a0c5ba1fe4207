"""The state of rewriting one root schema: keywords that are not enforced, and definitions that its references need."""

from collections import Counter
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


class Definition(NamedTuple):
    """A target of references, as some of them need it."""

    reference: str
    closed: bool
    tag: str | None = None
    """A property that is required."""


class Rewriting:
    """The rewriting of one root schema and of the definitions that it refers to."""

    def __init__(
        self,
        root: Any,
        rewrite_part: "Callable[[Rewriting, Mapping[str, Any], Path, bool], Any]",
        failure: CompileFailure | None,
    ) -> None:
        """``rewrite_part``: rewrites one schema at its path, closed or not. ``failure``: None at the first attempt."""
        self._rewrite_part = rewrite_part
        self._failure = failure
        self.references = References(root)
        self.disjointness = Disjointness(self.references)
        self.closing_disjointness = Disjointness(self.references)
        """Disjointness of options that are closed each by itself, counted by itself: no keyword needs them."""
        self.unenforced: dict[Unenforced, None] = {}
        self._names: dict[Definition, str] = {}
        self._definitions: dict[str, Definition] = {}
        """Definitions by their names."""
        self.waiting: list[tuple[str, Definition]] = []
        """Definitions that are still to be rewritten."""
        self._splits = 0
        self._visited: Counter[str] = Counter()
        self.left_out = frozenset() if failure is None else failure.left_out
        self.circular = failure is not None and failure.circular

    def report_unenforced(self, path: Path, keyword: str, *, asserts: bool = True) -> None:
        """Add to :attr:`unenforced`, of which there are at most :data:`MAX_UNENFORCED`."""
        if len(self.unenforced) < MAX_UNENFORCED:
            self.unenforced[Unenforced(path, keyword, asserts)] = None

    def rewrite_schema(self, schema: Any, path: Path, *, closed: bool = True) -> Any:
        """Rewrite ``schema``, a part of the root; returns False where no value satisfies it.

        ``closed``: whether an object has no other names than the schema, where it has no keyword for others.
        """
        return self._rewrite_part(self, schema, path, closed) if isinstance(schema, Mapping) else schema

    def compiles_schema(self, schema: Mapping[str, Any]) -> bool:
        """Whether llguidance compiles ``schema``; assumed until a grammar has failed."""
        return self._failure is None or self._failure.compiles(schema)

    def may_split(self) -> bool:
        """Count one more condition that becomes alternatives; False once they may be why a grammar failed."""
        self._splits += self._failure is None
        return self._failure is None and self._splits <= MAX_SPLITS

    def may_visit(self, keyword: str) -> bool:
        """Count one more schema that is searched for properties on behalf of ``keyword``; False for too many."""
        self._visited[keyword] += 1
        return self._visited[keyword] <= MAX_VISITED

    @property
    def has_failed(self) -> bool:
        """Whether llguidance failed to compile a first grammar."""
        return self._failure is not None

    @property
    def split(self) -> bool:
        """Whether some condition became alternatives."""
        return self._splits > 0

    def write_reference(self, reference: Any, *, closed: bool = True) -> str:
        """Return a ``$ref`` to the rewritten target of ``reference``.

        Raises :class:`GrammarError` for a reference without a target, and for one that leads to itself.
        """
        if not isinstance(reference, str) or self.references.find_target(reference) is None:
            raise GrammarError(f"$ref {reference!r:.60} leads to nothing: it must be within the schema")
        if self.references.leads_back(reference):
            raise GrammarError(f"$ref {reference!r:.60} leads back to itself, and no schema says what a value is")
        return self._refer_to(Definition(reference, closed))

    def require_in_target(self, written: str, tag: str) -> str:
        """Return ``written``, of :meth:`write_reference`, as a ``$ref`` whose target requires the property ``tag``."""
        target = self._definitions.get(written.removeprefix("#/$defs/"), Definition("#", closed=True))
        return self._refer_to(target._replace(tag=tag))

    def _refer_to(self, definition: "Definition") -> str:
        if definition == Definition("#", closed=True):
            return "#"
        if definition not in self._names:
            name = _name_of(definition.reference) if definition.tag is None else None
            if name is None or name in self._definitions:
                name = f"ref{len(self._names)}"
                while name in self._definitions:
                    name += "_"
            self._names[definition] = name
            self._definitions[name] = definition
            self.waiting.append((name, definition))
        return f"#/$defs/{self._names[definition]}"


def _name_of(reference: str) -> str | None:
    """The name of a definition right below ``$defs`` or ``definitions``; None for any other reference."""
    for begin in PLAIN_DEFINITIONS:
        name = reference.removeprefix(begin)
        if name != reference and not set(name) & set("/%~"):
            return name
    return None
