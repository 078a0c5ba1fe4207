"""Which fleets have which served names: two of them can want the same, and only one may get its requests. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.port import Key
from paternoster_operator.settings import Names

NAME_TAKEN = "ServedNameTaken"
NOT_RESERVED: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Claim:
    """What one fleet has to do with served names."""

    key: Key
    wanted: tuple[str, ...]
    """Names in its spec, the one for answers and metrics first."""
    held: tuple[str, ...]
    """Names in the operator's record, which an edit of the spec does not give away; never those of its status, which
    others may write."""
    created: str
    """When, in RFC 3339; empty where there is no API server."""

    @classmethod
    def from_resource(cls, resource: LLMDeployment, held: tuple[str, ...] = ()) -> "Claim":
        metadata = resource.metadata
        key = Key(metadata.namespace, metadata.name)
        return cls(key, resource.claimed_names, held, metadata.creation_timestamp or "")

    @property
    def age(self) -> tuple[str, Key]:
        """Older ones are smaller."""
        return self.created, self.key


@dataclass(frozen=True, slots=True)
class Ownership:
    """Which fleet has which names."""

    names: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)
    """Names of each fleet, its first name first; a fleet without a name is not in it."""
    owners: Mapping[str, Key] = field(default_factory=dict)
    """Owners by name."""
    reserved: Mapping[str, str] = field(default_factory=dict)
    """Namespaces by the names that no other one's fleet may have: a fleet of theirs that is gone had them."""


def assign_names(claims: Iterable[Claim], names: Names, reserved_for: Mapping[str, str] = NOT_RESERVED) -> Ownership:
    """Who has which names: a fleet has all that it wants, or else keeps those that it has.

    A name belongs to the fleet that has it already and wants it, else to the oldest that wants it (by namespace and
    name at equal age), of the namespace alone that it is ``reserved_for``. So no fleet gets another's requests by an
    edit, however old it is. One that keeps what it has loses a name there that it does not want any more and another
    fleet does.
    """
    by_age = sorted(claims, key=lambda claim: claim.age)
    reserved: dict[str, Key] = {}
    for claim in by_age:
        if _is_allowed(claim, names):
            for name in claim.wanted:
                if name in claim.held:
                    reserved.setdefault(name, claim.key)
    found: dict[Key, tuple[str, ...]] = {}
    owners: dict[str, Key] = {}
    for claim in by_age:
        others = (names_of.get(name, claim.key) for name in claim.wanted for names_of in (reserved, owners))
        if (
            _is_allowed(claim, names)
            and all(other == claim.key for other in others)
            and not _find_reserved(claim, reserved_for)
        ):
            found[claim.key] = claim.wanted
            owners |= dict.fromkeys(claim.wanted, claim.key)
    for claim in by_age:
        if claim.key not in found:
            free = (name for name in claim.held if name not in owners and reserved.get(name, claim.key) == claim.key)
            if still_free := tuple(name for name in free if not _find_misnamed([name], claim.key, names)):
                found[claim.key] = still_free
                owners |= dict.fromkeys(still_free, claim.key)
    return Ownership(found, owners, reserved_for)


def waits_for_own_namespace(claim: Claim, owned: Ownership, names: Names) -> bool:
    """Whether a fleet without any name lacks those that it wants only because others of its namespace have them.

    It may start meanwhile, so that a fleet that takes another one's place serves from the moment the other is deleted.
    """
    if (
        owned.names.get(claim.key)
        or _find_misnamed(claim.wanted, claim.key, names)
        or _find_reserved(claim, owned.reserved)
    ):
        return False
    return all(owned.owners.get(name, claim.key).namespace == claim.key.namespace for name in claim.wanted)


def explain_refusal(claim: Claim, owned: Ownership, names: Names) -> tuple[str, str] | None:
    """Why the fleet does not have the names it wants, as reason and message; None when it has."""
    if misnamed := _find_misnamed(claim.wanted, claim.key, names):
        return "ServedNameNotNamespaced", (
            f"{_field_of(claim, misnamed[0])} is {misnamed[0]}: must begin with {claim.key.namespace}/, as this "
            "installation wants served names to begin"
        )
    conflicts = [
        f"the served name {name} belongs to LLMDeployment {owner}, which has claimed it before {claim.key}"
        for name in claim.wanted
        if (owner := owned.owners.get(name, claim.key)) != claim.key
    ]
    conflicts += [
        f"the served name {name} is reserved for namespace {owned.reserved[name]}, whose LLMDeployment that had it "
        "was deleted within the last day"
        for name in _find_reserved(claim, owned.reserved)
        if name not in owned.owners
    ]
    advice = "choose another"
    if waits_for_own_namespace(claim, owned, names):
        advice += ", or delete the other once this one is UpToDate: its replicas start meanwhile"
    return (NAME_TAKEN, f"{'; '.join(conflicts)}: {advice}") if conflicts else None


def _field_of(claim: Claim, name: str) -> str:
    return "spec.model.servedName" if name == claim.wanted[0] else "spec.model.aliases or spec.adapters"


def _is_allowed(claim: Claim, names: Names) -> bool:
    return not _find_misnamed(claim.wanted, claim.key, names)


def _find_misnamed(wanted: Iterable[str], key: Key, names: Names) -> list[str]:
    """Names of ``wanted`` that lack the prefix of this installation."""
    return [name for name in wanted if names is not Names.GLOBAL and not name.startswith(f"{key.namespace}/")]


def _find_reserved(claim: Claim, reserved_for: Mapping[str, str]) -> list[str]:
    """The names it wants that are another namespace's."""
    namespace = claim.key.namespace
    return [name for name in claim.wanted if reserved_for.get(name, namespace) != namespace]
