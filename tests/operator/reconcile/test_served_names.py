"""Who has which served name: one at a time, the first to claim it, and nobody by an edit."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_operator.cluster.port import Key
from paternoster_operator.names.served_names import Claim, name_of, owners, refusal
from paternoster_operator.settings import Names

A, B = Key("team-a", "llama"), Key("team-b", "copy")
OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"

_NAMES = st.sampled_from(["llama", "qwen", "team-a/llama", "team-b/llama"])
_CLAIMS = st.lists(
    st.builds(
        Claim,
        st.builds(Key, st.sampled_from(["team-a", "team-b"]), st.sampled_from("xyz")),
        _NAMES,
        st.one_of(st.just(""), _NAMES),
        st.sampled_from([OLD, NEW]),
    ),
    unique_by=lambda claim: claim.key,
    max_size=6,
)


def test_the_oldest_has_it_and_the_other_is_told_both_names() -> None:
    claims = [Claim(B, "llama", "", NEW), Claim(A, "llama", "", OLD)]
    owned = owners(claims, Names.GLOBAL)
    assert owned == {"llama": A}
    assert refusal(claims[1], owned, Names.GLOBAL) is None
    reason, message = refusal(claims[0], owned, Names.GLOBAL) or ("", "")
    assert reason == "ServedNameTaken"
    assert all(each in message for each in ("llama", "team-a/llama", "team-b/copy"))


def test_at_equal_age_the_first_by_namespace_and_name_has_it() -> None:
    assert owners([Claim(B, "llama", "", OLD), Claim(A, "llama", "", OLD)], Names.GLOBAL) == {"llama": A}


def test_an_older_fleet_gets_nobodys_name_by_an_edit() -> None:
    thief = Claim(A, "llama", "qwen", OLD)
    owned = owners([thief, Claim(B, "llama", "llama", NEW)], Names.GLOBAL)
    assert owned == {"llama": B, "qwen": A}, "and it keeps what it had"
    assert (refusal(thief, owned, Names.GLOBAL) or ("",))[0] == "ServedNameTaken"


def test_what_nobody_wants_any_more_is_free() -> None:
    assert owners([Claim(A, "qwen", "llama", OLD), Claim(B, "llama", "", NEW)], Names.GLOBAL) == {"qwen": A, "llama": B}


@pytest.mark.parametrize("name", ["llama", "team-b/llama", "team-a", "team-ab/llama"])
def test_namespaced_names_begin_with_their_namespace(name: str) -> None:
    claim = Claim(A, name, name, OLD)
    owned = owners([claim], Names.NAMESPACED)
    assert owned == {}
    reason, message = refusal(claim, owned, Names.NAMESPACED) or ("", "")
    assert reason == "ServedNameNotNamespaced"
    assert "must begin with team-a/" in message


@given(_CLAIMS, st.sampled_from(Names))
def test_a_name_has_one_owner_that_claims_it_and_a_fleet_one_name(claims: list[Claim], names: Names) -> None:
    owned = owners(claims, names)
    assert len(set(owned.values())) == len(owned)
    by_key = {claim.key: claim for claim in claims}
    for name, key in owned.items():
        assert name in (by_key[key].wanted, by_key[key].held)
        assert names is Names.GLOBAL or name.startswith(f"{key.namespace}/")
    for claim in claims:
        has = name_of(claim.key, owned)
        assert (refusal(claim, owned, names) is None) == (has == claim.wanted)
        assert names is Names.NAMESPACED or claim.wanted in owned, "a name that is wanted is served"


@given(_CLAIMS, st.sampled_from(Names), st.randoms())
def test_the_order_in_which_fleets_are_seen_does_not_matter(
    claims: list[Claim], names: Names, random: "st.randoms"
) -> None:
    shuffled = claims[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert owners(shuffled, names) == owners(claims, names)


@given(_CLAIMS, st.sampled_from(Names), st.data())
def test_once_told_nobody_loses_a_name_to_another(claims: list[Claim], names: Names, data: st.DataObject) -> None:
    """A newcomer, or anybody's edit, takes no name from one that still wants it."""
    owned = owners(claims, names)
    told = [replace(claim, held=name_of(claim.key, owned)) for claim in claims]
    assert owners(told, names) == owned
    if not told:
        return
    edited = data.draw(st.sampled_from(told))
    wanted = data.draw(_NAMES)
    after = owners([replace(each, wanted=wanted) if each is edited else each for each in told], names)
    for claim in told:
        if claim is not edited and claim.held == claim.wanted:
            assert name_of(claim.key, after) == claim.held
