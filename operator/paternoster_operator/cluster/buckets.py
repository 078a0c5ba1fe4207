"""Share the fleets out among the shards of an operator, by buckets. Pure.

A fleet is in one of :data:`NUM_BUCKETS` buckets for ever, by the hash of its namespace and name; shards have buckets.
So the label that the API server selects by is the same for every number of shards, and another number starts no pod
anew.
"""

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from paternoster_contract import labels
from paternoster_operator.cluster.port import Key
from paternoster_operator.cluster.selector import write_selector

NUM_BUCKETS = 64
MAX_SHARDS = 16


def find_bucket(key: Key) -> int:
    """The bucket of a fleet."""
    return zlib.crc32(str(key).encode()) % NUM_BUCKETS


@lru_cache
def assign_buckets(count: int) -> tuple[int, ...]:
    """The shard of each bucket, of ``count`` shards.

    Rendezvous hashing with bounded loads: a bucket has the shard of the highest hash that is not full, so that none has
    more than an equal share, rounded up, and another count moves few.
    """
    full, loads, found = -(-NUM_BUCKETS // count), [0] * count, []
    for bucket in range(NUM_BUCKETS):
        ranked = sorted(range(count), key=lambda shard: hashlib.sha256(f"{bucket}/{shard}".encode()).digest())
        shard = next(shard for shard in ranked if loads[shard] < full)
        loads[shard] += 1
        found.append(shard)
    return tuple(found)


@dataclass(frozen=True)
class Shard:
    """One of ``count`` shards, counted from 0; the only one of 1 watches all there is."""

    number: int = 0
    count: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @cached_property
    def buckets(self) -> frozenset[int]:
        """Buckets that it is to have."""
        return frozenset(b for b, shard in enumerate(assign_buckets(self.count)) if shard == self.number)

    @property
    def others(self) -> list[int]:
        """The numbers of the other shards."""
        return [number for number in range(self.count) if number != self.number]

    def select_objects(self, selector: Mapping[str, Any]) -> str:
        """``selector`` narrowed to the objects that this shard watches.

        Shard 0 watches what no other does, so that an object without a label, or with one that is no bucket's, is seen.
        """
        if self.count == 1:
            return write_selector(selector)
        operator, buckets = (
            ("NotIn", {*range(NUM_BUCKETS)} - self.buckets) if self.number == 0 else ("In", self.buckets)
        )
        values = [str(bucket) for bucket in sorted(buckets)]
        narrowed = [
            *selector.get("matchExpressions", ()),
            {"key": labels.BUCKET, "operator": operator, "values": values},
        ]
        return write_selector({**selector, "matchExpressions": narrowed})


ONLY_SHARD = Shard()


def has_right_bucket(key: Key, metadata: Mapping[str, Any]) -> bool:
    """Whether the label of an object of the fleet ``key`` names its bucket."""
    return bool((metadata.get("labels") or {}).get(labels.BUCKET) == str(find_bucket(key)))


def add_bucket(key: Key, child: Mapping[str, Any], there: Mapping[str, Any] | None, shard: Shard) -> Mapping[str, Any]:
    """``child`` with the label; ``there`` is what the API server has of it.

    Pods get it from their Deployment's template where that is new: in one that is there already it would start all of
    them anew. A template that has the label keeps it, whatever the number of shards is.
    """
    label = {labels.BUCKET: str(find_bucket(key))}
    if shard.count > 1:
        child = _add_labels(child, label)
    if child["kind"] != "Deployment":
        return child
    template = {} if there is None else there.get("spec", {}).get("template", {})
    if labels.BUCKET in template.get("metadata", {}).get("labels", {}) or (there is None and shard.count > 1):
        child = {**child, "spec": {**child["spec"], "template": _add_labels(child["spec"]["template"], label)}}
    return child


def _add_labels(document: Mapping[str, Any], added: Mapping[str, str]) -> Mapping[str, Any]:
    metadata = document["metadata"]
    return {**document, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **added}}}
