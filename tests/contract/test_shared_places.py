"""Places are shared out by namespace, in whatever order they are claimed."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.shares.places import SharedPlaces
from paternoster_contract.shares.rows import fair_share


@given(st.integers(1, 8), st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.booleans()), max_size=80))
def test_no_namespace_is_kept_below_another_by_more_than_one(capacity: int, steps: list[tuple[str, int, bool]]) -> None:
    places, held = SharedPlaces[tuple[str, int]](capacity), dict[tuple[str, int], None]()
    for namespace, number, claims in steps:
        item = (namespace, number)
        if not claims:
            places.release(item)
            held.pop(item, None)
            continue
        before = Counter(namespace for namespace, _ in held)
        has, evicted = places.claim_place(item, namespace)
        if evicted is not None:
            assert before[evicted[0]] == max(before.values()) > before[namespace] + 1
            del held[evicted]
        if has:
            held[item] = None
        else:
            assert len(held) == capacity
            assert before[namespace] + 1 >= max(before.values())
        assert len(places) == len(held) <= capacity
        assert all(each in places for each in held)


@given(st.integers(1, 8), st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=80))
def test_what_takes_a_place_has_it_and_the_least_lately_used_of_the_largest_loses_its_own(
    capacity: int, steps: list[tuple[str, int]]
) -> None:
    places, held = SharedPlaces[tuple[str, int]](capacity), dict[tuple[str, int], None]()
    for item in steps:
        held.pop(item, None)
        before = Counter(namespace for namespace, _ in held)
        evicted = places.take_place(item, item[0])
        if evicted is not None:
            assert len(held) == capacity
            assert evicted == next(each for each in held if each[0] == evicted[0])
            assert before[evicted[0]] == max(before.values()) or evicted[0] == item[0]
            assert evicted[0] == item[0] or before[evicted[0]] > before[item[0]]
            del held[evicted]
        held[item] = None
        assert set(places) == set(held)
        assert len(held) <= capacity
        assert [places.count(each) for each in "abcd"] == [sum(own == each for own, _ in held) for each in "abcd"]


@given(st.integers(1, 500), st.integers(1, 9), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_an_amount_is_shared_out_as_rows_are(amount: int, most: int, counts: list[int]) -> None:
    places = SharedPlaces[tuple[int, int]](100)
    for namespace, count in enumerate(counts):
        for number in range(count):
            places.claim_place((namespace, number), str(namespace))
    assert places.share_amount(amount, most) == fair_share([count * most for count in counts], amount)


def test_ten_thousand_items_of_one_namespace_leave_each_other_its_own() -> None:
    places = SharedPlaces[str](100)
    for number in range(10_000):
        places.claim_place(f"hostile-{number}", "hostile")
    for team in range(20):
        assert places.claim_place(f"model-{team}", f"team-{team}")[0]
    for number in range(10_000):
        places.claim_place(f"hostile-{number}", "hostile")
    assert all(f"model-{team}" in places for team in range(20))
    assert len(places) == 100, "and it has all that no other claims"
