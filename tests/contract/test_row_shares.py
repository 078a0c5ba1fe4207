"""A document is shared out by namespace: who has few rows keeps all of them."""

from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.shares.rows import Sized, fair_share, rows_beyond_share

ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 100), st.sampled_from(["2026-01-01", "2026-02-01"])), max_size=30
).map(lambda rows: [Sized(f"m{i}", namespace, size, created) for i, (namespace, size, created) in enumerate(rows)])


@given(ROWS, st.integers(0, 2000))
def test_what_stays_fits_and_nothing_goes_that_did_not_have_to(rows: list[Sized], capacity: int) -> None:
    beyond = rows_beyond_share(rows, capacity)
    rows_left = [row for row in rows if row.name not in beyond]
    assert sum(row.size for row in rows_left) <= capacity
    if sum(row.size for row in rows) <= capacity:
        assert not beyond
    for row in rows:
        if row.name in beyond:
            wanted = sum(other.size for other in rows if other.namespace == row.namespace)
            assert wanted > beyond[row.name], "only a namespace that wants more than its share loses a row"


@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(0, 5000))
def test_the_share_is_the_largest_that_fits(wanted: list[int], capacity: int) -> None:
    def used(share: int) -> int:
        return sum(min(size, share) for size in wanted)

    share = fair_share(wanted, capacity)
    assert used(share) <= capacity
    assert used(share + 1) > capacity or used(share + 1) == sum(wanted)


def test_two_hundred_fleets_of_one_namespace_cost_the_others_nothing() -> None:
    hostile = [Sized(f"h{i}", "hostile", 95_000, "2026-01-01") for i in range(200)]
    others = [Sized(f"o{i}", f"team-{i}", 20_000, "2026-02-01") for i in range(50)]
    beyond = rows_beyond_share([*hostile, *others], 16 * 2**20)
    assert beyond
    assert all(name.startswith("h") for name in beyond)
    assert beyond.keys() == {f"h{i}" for i in range(200)} - {row.name for row in hostile if row.name not in beyond}
    assert len(beyond) == 200 - (16 * 2**20 - 50 * 20_000) // 95_000
