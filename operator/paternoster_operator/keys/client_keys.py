"""Clients' keys as Secrets hold them hashed: a list of entries, each with a tenant and what it may ask for. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field, ValidationError

from paternoster_contract.access.identity import TENANT_PATTERN, Identity
from paternoster_operator.cluster.port import ClusterError
from paternoster_operator.keys.bounded_yaml import load_bounded_yaml

LONGEST_LIST = 2**17
"""Characters of one list; four hundred entries with every field."""
MAX_KEYS = 256
"""Keys of one fleet: digests of all are in the table that every gateway reads."""
MAX_TOLD = 3
"""Bad entries that are named; the others are counted."""


class ClientKey(Identity):
    """One entry. Several may have one name: keys of one tenant."""

    tenant: str = Field(alias="name", pattern=TENANT_PATTERN)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the key: a reader of the Secret has no key."""

    def to_identity(self) -> Identity:
        return Identity(**self.model_dump(exclude={"sha256"}))


@dataclass(frozen=True, slots=True)
class KeyList:
    """The valid entries of one list, and what is wrong with the others."""

    identities: Mapping[str, Identity]
    """Identities by digest."""
    faults: Sequence[str] = ()
    """No value of an entry is in them: somebody may have written a key there."""


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """Who may send requests to one fleet."""

    digests: list[str] | None
    """None: any client that reaches the gateway, without a key."""
    identities: Mapping[str, Identity] = field(default_factory=dict)
    """Identities by digest, where the Secret has more than the digest."""
    fault: ClusterError | None = None
    """The first thing that is wrong with what the manifest names; the keys that are right open all the same."""


def read_key_list(text: str) -> KeyList:
    """The entries of a list in YAML or JSON; never raises, and takes at most some 0.2 s whatever ``text`` is."""
    if len(text) > LONGEST_LIST:
        return KeyList({}, (f"it is longer than {LONGEST_LIST} characters",))
    try:
        entries = load_bounded_yaml(text)
    except ValueError as error:
        return KeyList({}, (str(error),))
    if not isinstance(entries, list):
        return KeyList({}, ("it must be a list of entries with name and sha256",))
    if len(entries) > MAX_KEYS:
        return KeyList({}, (f"it has {len(entries)} entries, more than the {MAX_KEYS} that a fleet may have",))
    identities: dict[str, Identity] = {}
    faults = []
    for number, entry in enumerate(entries, start=1):
        try:
            key = ClientKey.model_validate(entry)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"]))[:40]
            faults.append(f"entry {number}: {where + ': ' if where else ''}{first['msg'][:120]}")
            continue
        if key.sha256 in identities:
            faults.append(f"entry {number}: sha256: it is that of an entry before")
            continue
        identities[key.sha256] = key.to_identity()
    if len(faults) > MAX_TOLD:
        faults = [*faults[:MAX_TOLD], f"and {len(faults) - MAX_TOLD} more"]
    return KeyList(identities, tuple(faults))
