"""Which fleet has which served name: two of them can want the same, and only one may get its requests. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.port import Key
from paternoster_operator.settings import Names


@dataclass(frozen=True, slots=True)
class Claim:
    """What one fleet has to do with served names."""

    key: Key
    wanted: str
    """As its spec says."""
    held: str
    """As its status says: the name it was last known by, which an edit of the spec does not give away."""
    created: str
    """When, in RFC 3339; empty where there is no API server."""

    @classmethod
    def of(cls, resource: LLMDeployment) -> "Claim":
        metadata = resource.metadata
        key = Key(metadata.namespace, metadata.name)
        held = resource.status.get("servedModel", "")
        return cls(key, resource.served_name, str(held), metadata.creation_timestamp or "")

    @property
    def age(self) -> tuple[str, Key]:
        """Older ones are smaller."""
        return self.created, self.key


def owners(claims: Iterable[Claim], names: Names) -> dict[str, Key]:
    """Served name -> the fleet that has it.

    A name belongs to the fleet that has it already, else to the oldest that wants it (by namespace and name at equal
    age). So no fleet gets another's requests by an edit, however old it is. One that cannot have what it wants keeps
    what it has, unless somebody wants that.
    """
    found: dict[str, Key] = {}
    by_age = sorted(claims, key=lambda claim: claim.age)
    wanting = [claim for claim in by_age if _allowed(claim.wanted, claim.key, names)]
    for claim in [each for each in wanting if each.held == each.wanted] + wanting:
        found.setdefault(claim.wanted, claim.key)
    served = set(found.values())
    for claim in by_age:
        if claim.held and claim.key not in served and _allowed(claim.held, claim.key, names):
            found.setdefault(claim.held, claim.key)
    return found


def name_of(key: Key, owned: Mapping[str, Key]) -> str:
    """The name that ``key`` has; empty for none."""
    return next((name for name, owner in owned.items() if owner == key), "")


def refusal(claim: Claim, owned: Mapping[str, Key], names: Names) -> tuple[str, str] | None:
    """Why the fleet does not have the name it wants, as reason and message; None when it has."""
    if not _allowed(claim.wanted, claim.key, names):
        said = f"must begin with {claim.key.namespace}/, as this installation wants served names to begin"
        return "ServedNameNotNamespaced", f"spec.model.servedName is {claim.wanted}: {said}"
    owner = owned.get(claim.wanted, claim.key)
    if owner == claim.key:
        return None
    said = f"belongs to LLMDeployment {owner}, which has claimed it before {claim.key}: choose another"
    return "ServedNameTaken", f"the served name {claim.wanted} {said}"


def _allowed(name: str, key: Key, names: Names) -> bool:
    return names is Names.GLOBAL or name.startswith(f"{key.namespace}/")
