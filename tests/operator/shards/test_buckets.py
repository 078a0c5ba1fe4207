"""Each fleet is one shard's, and each object is sent to one shard, whatever its label is."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.operator.kubernetes.fake_api_server import matches_selector

from paternoster_contract import labels
from paternoster_operator.cluster.buckets import (
    MAX_SHARDS,
    NUM_BUCKETS,
    Shard,
    add_bucket,
    assign_buckets,
    find_bucket,
    has_right_bucket,
)
from paternoster_operator.cluster.port import Key

COUNTS = st.integers(1, MAX_SHARDS)
KEYS = st.builds(Key, st.text(min_size=1), st.text(min_size=1))
MANAGED = {"matchLabels": {labels.MANAGED_BY: labels.MANAGER}}


@given(COUNTS)
def test_no_shard_has_more_than_an_equal_share(count: int) -> None:
    loads = [assign_buckets(count).count(shard) for shard in range(count)]
    assert sum(loads) == NUM_BUCKETS
    assert max(loads) <= -(-NUM_BUCKETS // count)
    assert min(loads) > 0


@given(st.integers(2, MAX_SHARDS))
def test_another_shard_moves_at_most_half_of_the_fleets(count: int) -> None:
    before, after = assign_buckets(count - 1), assign_buckets(count)
    moved = sum(a != b for a, b in zip(before, after, strict=True))
    assert moved <= NUM_BUCKETS // 2


@given(COUNTS, KEYS)
def test_a_fleet_has_one_shard(count: int, key: Key) -> None:
    bucket = find_bucket(key)
    assert [shard for shard in range(count) if bucket in Shard(shard, count).buckets] == [assign_buckets(count)[bucket]]


@given(COUNTS, st.one_of(st.none(), st.integers(-1, NUM_BUCKETS).map(str), st.text()))
def test_an_object_is_sent_to_one_shard_whatever_its_label(count: int, label: str | None) -> None:
    found = {labels.MANAGED_BY: labels.MANAGER} | ({} if label is None else {labels.BUCKET: label})
    document = {"metadata": {"labels": found}}
    sent = [n for n in range(count) if matches_selector(document, Shard(n, count).select_objects(MANAGED))]
    is_bucket = label in {str(bucket) for bucket in range(NUM_BUCKETS)}
    assert sent == [assign_buckets(count)[int(label)] if label is not None and is_bucket else 0]


def test_the_only_shard_selects_as_before() -> None:
    assert Shard().select_objects(MANAGED) == f"{labels.MANAGED_BY}={labels.MANAGER}"
    assert Shard().select_objects({}) == ""


def deployment(template_labels: dict[str, str]) -> dict[str, Any]:
    template = {"metadata": {"labels": template_labels}, "spec": {}}
    return {"kind": "Deployment", "metadata": {"name": "ride", "labels": {"a": "b"}}, "spec": {"template": template}}


def template_labels(child: Any) -> dict[str, str]:
    found: dict[str, str] = child["spec"]["template"]["metadata"]["labels"]
    return found


def test_pods_that_run_are_not_started_anew_for_the_label() -> None:
    key, child = Key("lifts", "ride"), deployment({"a": "b"})
    label = {labels.BUCKET: str(find_bucket(key))}
    there, labelled = deployment({"a": "b"}), deployment({"a": "b", **label})
    several, one = Shard(1, 3), Shard()
    assert template_labels(add_bucket(key, child, there, several)) == {"a": "b"}, "turned on: a rollout of every fleet"
    assert template_labels(add_bucket(key, child, None, several)) == {"a": "b", **label}
    assert template_labels(add_bucket(key, child, labelled, several)) == {"a": "b", **label}
    assert template_labels(add_bucket(key, child, labelled, one)) == {"a": "b", **label}, "back to one shard"
    assert has_right_bucket(key, add_bucket(key, child, there, several)["metadata"])


def test_one_shard_changes_nothing_of_a_child() -> None:
    key, child = Key("lifts", "ride"), deployment({"a": "b"})
    for there in (None, deployment({"a": "b"})):
        assert add_bucket(key, child, there, Shard()) == deployment({"a": "b"})
    service = {"kind": "Service", "metadata": {"labels": {}}}
    assert add_bucket(key, service, None, Shard()) is service
