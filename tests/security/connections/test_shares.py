"""Shares of a total by party: bounded, with room for who comes, and given up by those that hold more."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_http.shares import Party, Shares

PARTIES = st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"))
CLAIMS = st.lists(st.tuples(PARTIES, st.integers(1, 40)), max_size=60)


def filled(total: int, claims: list[tuple[Party, int]]) -> tuple[Shares, Counter[Party]]:
    """The claims that are admitted one after another, and what each party holds then."""
    shares, held = Shares(total), Counter[Party]()
    for party, amount in claims:
        if shares.has_room(party, amount):
            shares.add(party, amount)
            held[party] += amount
    return shares, held


@given(st.integers(0, 2000), CLAIMS)
def test_no_more_than_the_total_is_held_and_each_group_holds_what_its_parties_do(
    total: int, claims: list[tuple[Party, int]]
) -> None:
    shares, held = filled(total, claims)
    assert shares.held_by() == held.total() <= total
    for fleet in "abc":
        assert shares.held_by((fleet,)) == sum(count for party, count in held.items() if party[0] == fleet)
    for party, count in held.items():
        assert shares.held_by(party) == count


@given(st.integers(0, 2000), CLAIMS)
def test_what_is_released_is_free_again(total: int, claims: list[tuple[Party, int]]) -> None:
    shares, held = filled(total, claims)
    for party, count in held.items():
        shares.remove(party, count)
    assert shares.held_by() == 0
    assert shares.has_room(("new", "x"), total - 2 * shares.reserve)
    assert list(shares.find_larger(("new", "x"))) == []
    assert vars(shares) == vars(Shares(total)), "nothing is remembered of who holds nothing"


@given(st.integers(0, 5000), st.integers(1, 100))
def test_a_party_alone_has_all_but_the_reserves(total: int, piece: int) -> None:
    shares, party = Shares(total), ("fleet", "tenant")
    while shares.has_room(party, piece):
        shares.add(party, piece)
    assert total - 2 * shares.reserve - piece < shares.held_by() <= max(0, total - 2 * shares.reserve)


@given(st.integers(16, 5000), st.integers(1, 100))
def test_one_that_comes_to_a_party_that_has_all_gets_a_part_of_the_reserve_at_once(total: int, piece: int) -> None:
    shares = Shares(total)
    while shares.has_room(("fleet", "noisy"), piece):
        shares.add(("fleet", "noisy"), piece)
    another_fleet = 2 * shares.reserve // 3
    another_tenant = shares.reserve // 2
    assert shares.has_room(("other", "tenant"), another_fleet)
    assert shares.has_room(("fleet", "quiet"), another_tenant)
    shares.add(("other", "tenant"), another_fleet)
    # And the next one, of what is left.
    assert shares.has_room(("third", "tenant"), (total - shares.held_by()) // 3)
    assert not shares.has_room(("fleet", "noisy"), piece)


@given(st.integers(0, 2000), CLAIMS, PARTIES, st.integers(1, 40))
def test_exchanges_leave_nobody_with_less_than_the_one_that_gets_it(
    total: int, claims: list[tuple[Party, int]], party: Party, amount: int
) -> None:
    shares, held = filled(total, claims)
    for holder in shares.find_larger(party):
        assert holder != party
        assert held[holder] > 0
        level = 1 if holder[0] != party[0] else 2
        assert shares.held_by(holder[:level]) > shares.held_by(party[:level])
        if shares.gives_way(holder, party, 1, amount):
            assert shares.held_by(holder[:level]) - 1 >= shares.held_by(party[:level]) + amount


@settings(max_examples=20)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(150, 300))
def test_who_wants_more_comes_to_an_equal_share_from_those_that_give_way(fleets: int, tenants: int, total: int) -> None:
    """Each of several parties takes all that it can get, one after another; each unit may be taken from its holder."""
    shares = Shares(total, reserve=0)
    parties = [(f"fleet {n}", f"tenant {m}") for n in range(fleets) for m in range(tenants)]
    for party in parties:
        while True:
            if not shares.has_room(party, 1):
                holder = next((each for each in shares.find_larger(party) if shares.gives_way(each, party, 1, 1)), None)
                if holder is None:
                    break
                shares.remove(holder, 1)
            shares.add(party, 1)
    assert shares.held_by() == total
    of_fleets = [shares.held_by((f"fleet {n}",)) for n in range(fleets)]
    assert max(of_fleets) - min(of_fleets) <= tenants + 1
    for n in range(fleets):
        of_tenants = [shares.held_by((f"fleet {n}", f"tenant {m}")) for m in range(tenants)]
        assert max(of_tenants) - min(of_tenants) <= 2


def test_a_holder_gives_way_first_in_the_largest_group() -> None:
    shares = Shares(100, reserve=0)
    for party, amount in {("a", "x"): 30, ("a", "y"): 10, ("b", "x"): 35, ("c", "x"): 5, ("c", "y"): 1}.items():
        shares.add(party, amount)
    assert list(shares.find_larger(("c", "y"))) == [("a", "x"), ("a", "y"), ("b", "x"), ("c", "x")]
    assert list(shares.find_larger(("a", "y"))) == [("a", "x")]
    assert list(shares.find_larger(("a", "x"))) == []
    assert shares.gives_way(("b", "x"), ("c", "y"), 29, 0)
    assert not shares.gives_way(("b", "x"), ("c", "y"), 30, 0), "5 are left to b, and c has 6"
    assert not shares.gives_way(("c", "y"), ("c", "y"), 0, 0)
