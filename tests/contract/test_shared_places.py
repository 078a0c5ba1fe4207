"""Places are shared out by namespace, in whatever order they are claimed."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.shares.places import SharedPlaces


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
