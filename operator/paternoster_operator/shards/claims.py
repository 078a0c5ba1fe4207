"""The record of which shard has which buckets of fleets. Pure.

A shard reconciles the fleets of a bucket only while the record names it, so that no two do. Another one gets a bucket
when the one that has it has let go of it, or is dead. Each time a bucket has another holder, it has a greater token;
fleets have it in ``status.shardToken``.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, Field, ValidationError

from paternoster_operator.cluster.buckets import MAX_SHARDS, NUM_BUCKETS

FIELD = "shards.json"
"""Field of the ConfigMap that has the record."""


class Holding(BaseModel, frozen=True):
    """Who has one bucket."""

    shard: int | None = Field(default=None, ge=0, lt=MAX_SHARDS)
    """None once its holder has let go of it."""
    token: int = Field(default=0, ge=0)


class _Claims(BaseModel):
    token: int = Field(ge=0)
    buckets: list[Holding] = Field(min_length=NUM_BUCKETS, max_length=NUM_BUCKETS)


@dataclass(frozen=True, slots=True)
class BucketClaims:
    """All buckets, and the token that was given last."""

    token: int = 0
    buckets: tuple[Holding, ...] = field(default=(Holding(),) * NUM_BUCKETS)

    @classmethod
    def first(cls, shard: int, now: int) -> "BucketClaims":
        """A new record, in which ``shard`` has all buckets. ``now``: Unix seconds.

        Its tokens begin there, so that they are greater than those of a record that somebody deleted.
        """
        return cls(now, (Holding(shard=shard, token=now),) * NUM_BUCKETS)

    def encode(self) -> str:
        """One line."""
        return _Claims(token=self.token, buckets=list(self.buckets)).model_dump_json() + "\n"

    @classmethod
    def decode(cls, data: Mapping[str, str]) -> "BucketClaims":
        """Read the fields of the ConfigMap; raises ``ValueError`` for anything but :meth:`encode` writes."""
        try:
            found = _Claims.model_validate_json(data.get(FIELD, ""))
        except ValidationError as error:
            raise ValueError(f"the record of shards is invalid: {error}") from error
        return cls(found.token, tuple(found.buckets))

    def list_held(self, shard: int) -> dict[int, int]:
        """The buckets of ``shard``, with their tokens."""
        return {bucket: held.token for bucket, held in enumerate(self.buckets) if held.shard == shard}

    def list_holders(self, buckets: Collection[int]) -> set[int]:
        """The shards that have some of ``buckets``."""
        return {shard for bucket in buckets if (shard := self.buckets[bucket].shard) is not None}

    def take_free(self, shard: int, wanted: Collection[int], dead: Collection[int], *, again: bool) -> "BucketClaims":
        """Give ``shard`` those of ``wanted`` that no shard or a ``dead`` one has, with a new token.

        ``again``: all that it has gets the token, too, since another process of it held them before.
        """
        found = {
            bucket
            for bucket, held in enumerate(self.buckets)
            if (bucket in wanted and (held.shard is None or (held.shard in dead and held.shard != shard)))
            or (again and held.shard == shard)
        }
        if not found:
            return self
        token = max(self.token, *(held.token for held in self.buckets)) + 1
        mine = Holding(shard=shard, token=token)
        return BucketClaims(token, tuple(mine if b in found else held for b, held in enumerate(self.buckets)))

    def release(self, shard: int, buckets: Collection[int]) -> "BucketClaims":
        """Let another shard have those of ``buckets`` that ``shard`` has."""
        free = (
            Holding(token=held.token) if bucket in buckets and held.shard == shard else held
            for bucket, held in enumerate(self.buckets)
        )
        return BucketClaims(self.token, tuple(free))
