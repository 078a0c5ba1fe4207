"""The record of shards: no bucket has two holders, and each holder's token is greater than the one before."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_operator.cluster.buckets import NUM_BUCKETS, Shard
from paternoster_operator.shards.claims import FIELD, BucketClaims

SHARDS = st.integers(0, 4)
STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "restart", "release"]), SHARDS, st.integers(0, NUM_BUCKETS - 1), st.sets(SHARDS))
)


@given(STEPS)
def test_tokens_grow_with_each_holder_and_nobody_alive_loses_a_bucket(
    steps: list[tuple[str, int, int, set[int]]],
) -> None:
    claims = BucketClaims.first(0, 7)
    for action, shard, bucket, dead in steps:
        before = claims
        if action == "release":
            claims = claims.release(shard, {bucket})
        else:
            claims = claims.take_free(shard, Shard(shard, 5).buckets, dead - {shard}, again=action == "restart")
        for old, new in zip(before.buckets, claims.buckets, strict=True):
            if new.shard is not None and new != old:
                assert new.token > max(old.token, before.token)
            if old.shard is not None and new.shard != old.shard:
                assert (action, old.shard) == ("release", shard) or old.shard in dead
        assert BucketClaims.decode({FIELD: claims.encode()}) == claims


def test_a_shard_waits_for_a_bucket_that_another_has() -> None:
    claims, wanted = BucketClaims.first(0, 7), Shard(1, 3).buckets
    assert claims.take_free(1, wanted, (), again=False) == claims
    bucket = min(wanted)
    given_away = claims.release(0, {bucket}).take_free(1, wanted, (), again=False)
    assert given_away.list_held(1) == {bucket: 8}
    assert given_away.take_free(1, wanted, {0}, again=False).list_held(1) == {bucket: 8} | dict.fromkeys(
        wanted - {bucket}, 9
    )


@pytest.mark.parametrize(
    "text",
    ["", "?", "{}", '{"token": -1, "buckets": []}', json.dumps({"token": 1, "buckets": [{"shard": 99}] * NUM_BUCKETS})],
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the record of shards is invalid"):
        BucketClaims.decode({FIELD: text})
