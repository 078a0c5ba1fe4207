"""The record of which fleet has which served names, which only the operator writes. Pure.

A status can be written by others, so that it says nothing of names; when fleets were made decides only who has a name
first. What a namespace's fleets claim is bounded by its share of the record, and a name whose fleet is gone stays its
namespace's for :data:`RESERVED_SECONDS`: a fleet that is deleted and made again gets its name back.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from paternoster_contract.limits import LONGEST_NAME, MAX_ADAPTERS, MAX_SERVED_NAMES
from paternoster_contract.shares.rows import Sized, rows_beyond_share
from paternoster_operator.cluster.port import Key
from paternoster_operator.names.served_names import Claim, Ownership, assign_names
from paternoster_operator.settings import Names

FIELD = "names.json"
"""Field of the ConfigMap that has the record."""
MAX_RECORD_BYTES = 900_000
"""A ConfigMap holds 1 MiB."""
RESERVED_SECONDS = 86_400
"""For which a name is its namespace's after its fleet was deleted: longer than a restore, or an outage of a watch."""


class Entry(BaseModel, frozen=True):
    """The names of one fleet, its first name first, and since when it is gone."""

    names: tuple[Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)], ...] = Field(
        min_length=1, max_length=MAX_SERVED_NAMES + MAX_ADAPTERS
    )
    gone_since: int | None = Field(default=None, ge=0)
    """In Unix seconds; None while it is there."""


class _Document(BaseModel):
    fleets: dict[str, Entry]


@dataclass(frozen=True, slots=True)
class NameRecord:
    """Names by fleet."""

    fleets: Mapping[Key, Entry] = field(default_factory=dict)

    def encode(self) -> str:
        """One line a fleet, in order."""
        lines = (_encode_entry(key, self.fleets[key]) for key in sorted(self.fleets))
        return '{"fleets": {\n' + ",\n".join(lines) + "\n}}\n"

    @classmethod
    def decode(cls, text: str) -> "NameRecord":
        """Read the result of :meth:`encode`; raises ``ValueError`` for anything else, also two owners of one name."""
        try:
            document = _Document.model_validate_json(text)
        except ValidationError as error:
            raise ValueError(f"the record of served names is invalid: {error}") from error
        fleets = {Key(*key.split("/", 1)): entry for key, entry in document.fleets.items() if "/" in key}
        if len(fleets) < len(document.fleets):
            raise ValueError("the record of served names is invalid: each fleet must be NAMESPACE/NAME")
        names = [name for entry in fleets.values() for name in entry.names]
        if len(names) > len(set(names)):
            raise ValueError("the record of served names is invalid: a name has two fleets")
        return cls(fleets)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who has which names now, and the record of it."""

    owned: Ownership = field(default_factory=Ownership)
    record: NameRecord = field(default_factory=NameRecord)
    left_out: Mapping[Key, int] = field(default_factory=dict)
    """Fleets for whose names the record has no room, with the bytes that their namespace has."""


def update_record(
    record: NameRecord, claims: Sequence[Claim], present: Iterable[Key], names: Names, now: int
) -> Assignment:
    """Assign names to ``claims``, which hold what ``record`` has for them. ``now``: Unix seconds.

    ``present``: fleets that are there, also such as claim nothing because they cannot be used.
    """
    there = {*present}
    claimed = {claim.key for claim in claims}
    unclaimed: dict[Key, Entry] = {}
    for key, entry in record.fleets.items():
        if key not in claimed:
            gone_since = None if key in there else entry.gone_since if entry.gone_since is not None else now
            if gone_since is None or now - gone_since < RESERVED_SECONDS:
                unclaimed[key] = Entry(names=entry.names, gone_since=gone_since)
    left_out = _find_left_out(record, claims, unclaimed)
    unclaimed = {key: entry for key, entry in unclaimed.items() if key not in left_out}
    reserved_for = {name: key.namespace for key, entry in unclaimed.items() for name in entry.names}
    fitting = [
        replace(claim, wanted=(), held=()) if claim.key in left_out else claim for claim in claims
    ]  # and their names are others'
    owned = assign_names(fitting, names, reserved_for)
    fleets = {key: Entry(names=has) for key, has in owned.names.items() if has}
    for key, entry in unclaimed.items():
        if still := tuple(name for name in entry.names if name not in owned.owners):
            fleets[key] = Entry(names=still, gone_since=entry.gone_since)
    return Assignment(replace(owned, names={key: has for key, has in owned.names.items() if has}),
                      NameRecord(fleets), left_out)  # fmt: skip


def _find_left_out(record: NameRecord, claims: Iterable[Claim], unclaimed: Mapping[Key, Entry]) -> Mapping[Key, int]:
    """Fleets beyond their namespace's share of the record, with the share: gone ones first, then new ones."""
    sized, keys = [], {}
    if (
        _estimate_bytes([(claim.key, (*claim.wanted, *claim.held)) for claim in claims])
        + _estimate_bytes([(key, entry.names) for key, entry in unclaimed.items()])
        <= MAX_RECORD_BYTES
    ):
        return {}
    for key, names, rank in (
        *(
            (claim.key, {*claim.wanted, *claim.held}, (claim.key not in record.fleets, claim.created))
            for claim in claims
        ),
        *((key, entry.names, (2 if entry.gone_since is not None else 0, "")) for key, entry in unclaimed.items()),
    ):
        size = len(_encode_entry(key, Entry.model_construct(names=tuple(names), gone_since=2**40)).encode()) + 2
        sized.append(Sized(str(key), key.namespace, size, rank))
        keys[str(key)] = key
    if sum(row.size for row in sized) <= MAX_RECORD_BYTES:
        return {}
    return {keys[name]: share for name, share in rows_beyond_share(sized, MAX_RECORD_BYTES).items()}


def _estimate_bytes(fleets: Iterable[tuple[Key, Iterable[str]]]) -> int:
    """No less than their entries have: a character of JSON has six bytes at most."""
    return sum(
        64 + 6 * (len(key.namespace) + len(key.name) + sum(len(name) + 1 for name in names)) for key, names in fleets
    )


def _encode_entry(key: Key, entry: Entry) -> str:
    value = {"names": entry.names} | ({} if entry.gone_since is None else {"gone_since": entry.gone_since})
    return f"{json.dumps(str(key), ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
