"""Who has which served name: one at a time, the first to claim it, and none by an edit."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_operator.cluster.port import Key
from paternoster_operator.names.served_names import Claim, assign_names, explain_refusal
from paternoster_operator.settings import Names

A, B, C = Key("team-a", "llama"), Key("team-b", "copy"), Key("team-b", "third")
OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"

_NAMES = st.sampled_from(["llama", "qwen", "llama:latest", "team-a/llama", "team-b/llama"])


def _tuples(least: int) -> "st.SearchStrategy[tuple[str, ...]]":
    return st.lists(_NAMES, min_size=least, max_size=3, unique=True).map(tuple)


_CLAIMS = st.lists(
    st.builds(
        Claim,
        st.builds(Key, st.sampled_from(["team-a", "team-b"]), st.sampled_from("xyz")),
        _tuples(1),
        _tuples(0),
        st.sampled_from([OLD, NEW]),
    ),
    unique_by=lambda claim: claim.key,
    max_size=6,
)


def claim(key: Key, wanted: str, held: str = "", created: str = OLD) -> Claim:
    """``wanted`` and ``held``: names with spaces between."""
    return Claim(key, tuple(wanted.split()), tuple(held.split()), created)


def owners(claims: list[Claim], names: Names = Names.GLOBAL) -> dict[str, Key]:
    return dict(assign_names(claims, names).owners)


def test_the_oldest_has_it_and_the_other_is_told_both_names() -> None:
    claims = [claim(B, "llama", created=NEW), claim(A, "llama")]
    owned = assign_names(claims, Names.GLOBAL)
    assert owned.owners == {"llama": A}
    assert explain_refusal(claims[1], owned, Names.GLOBAL) is None
    reason, message = explain_refusal(claims[0], owned, Names.GLOBAL) or ("", "")
    assert reason == "ServedNameTaken"
    assert message == (
        "the served name llama belongs to LLMDeployment team-a/llama, which has claimed it before team-b/copy: "
        "choose another"
    )


def test_at_equal_age_the_first_by_namespace_and_name_has_it() -> None:
    assert owners([claim(B, "llama"), claim(A, "llama")]) == {"llama": A}


def test_an_older_fleet_gets_nobodys_name_by_an_edit() -> None:
    thief = claim(A, "llama", "qwen")
    owned = assign_names([thief, claim(B, "llama", "llama", NEW)], Names.GLOBAL)
    assert owned.owners == {"llama": B, "qwen": A}, "and it keeps what it had"
    assert (explain_refusal(thief, owned, Names.GLOBAL) or ("",))[0] == "ServedNameTaken"


def test_what_nobody_wants_any_more_is_free() -> None:
    assert owners([claim(A, "qwen", "llama"), claim(B, "llama", created=NEW)]) == {"qwen": A, "llama": B}


def test_aliases_are_names_like_the_first() -> None:
    """Whether a name is the first of one fleet or an alias of another, only one of the two has it."""
    alias, first = claim(A, "llama-3.1 llama", "llama-3.1 llama", NEW), claim(B, "llama")
    owned = assign_names([alias, first], Names.GLOBAL)
    assert owned.names == {A: ("llama-3.1", "llama")}
    assert (explain_refusal(first, owned, Names.GLOBAL) or ("",))[0] == "ServedNameTaken"


def test_a_fleet_has_all_of_its_names_or_those_that_it_had() -> None:
    """And names that it then cannot use are free for others."""
    greedy = claim(A, "qwen llama free", "qwen")
    claims = [greedy, claim(B, "llama", "llama", NEW), claim(C, "free", created=NEW)]
    owned = assign_names(claims, Names.GLOBAL)
    assert owned.names == {A: ("qwen",), B: ("llama",), C: ("free",)}
    _, message = explain_refusal(greedy, owned, Names.GLOBAL) or ("", "")
    assert "llama belongs to LLMDeployment team-b/copy" in message
    assert "free belongs to LLMDeployment team-b/third" in message


def test_the_first_name_and_an_alias_may_change_places() -> None:
    owned = assign_names([claim(A, "b a", "a b")], Names.GLOBAL)
    assert owned.names == {A: ("b", "a")}


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ("llama", "servedName is llama"), ("team-b/llama", "servedName is team-b/llama"),
        ("team-a", "servedName is team-a"), ("team-ab/llama", "servedName is team-ab/llama"),
        ("team-a/llama llama:latest", "aliases or spec.adapters is llama:latest"),
    ],
)  # fmt: skip
def test_namespaced_names_begin_with_their_namespace(wanted: str, field: str) -> None:
    bad = claim(A, wanted, wanted)
    owned = assign_names([bad], Names.NAMESPACED)
    assert all(name.startswith("team-a/") for name in owned.owners)
    reason, message = explain_refusal(bad, owned, Names.NAMESPACED) or ("", "")
    assert reason == "ServedNameNotNamespaced"
    assert message.startswith(f"spec.model.{field}: must begin with team-a/,")


@given(_CLAIMS, st.sampled_from(Names))
def test_a_name_has_one_owner_and_a_fleet_all_its_names_or_some_it_had(claims: list[Claim], names: Names) -> None:
    owned = assign_names(claims, names)
    assert owned.owners == {name: key for key, has in owned.names.items() for name in has}
    assert len(owned.owners) == sum(map(len, owned.names.values()))
    for each in claims:
        has = owned.names.get(each.key, ())
        assert has == each.wanted or set(has) <= set(each.held)
        assert (explain_refusal(each, owned, names) is None) == (has == each.wanted)
        assert names is Names.GLOBAL or all(name.startswith(f"{each.key.namespace}/") for name in has)
    for each in claims:
        if names is Names.GLOBAL and len(each.wanted) == 1:
            assert each.wanted[0] in owned.owners, "a name that is a fleet's only wish is served"


@given(_CLAIMS, st.sampled_from(Names), st.randoms())
def test_the_order_in_which_fleets_are_seen_does_not_matter(
    claims: list[Claim], names: Names, random: "st.randoms"
) -> None:
    shuffled = claims[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assign_names(shuffled, names) == assign_names(claims, names)


@given(_CLAIMS, st.sampled_from(Names), st.data())
def test_once_told_nobody_loses_a_name_to_another(claims: list[Claim], names: Names, data: st.DataObject) -> None:
    """A newcomer, or an edit, takes no name from one that still wants it."""
    owned = assign_names(claims, names)
    owned_claims = [replace(each, held=owned.names.get(each.key, ())) for each in claims]
    again = assign_names(owned_claims, names)
    for each in claims:
        before = set(owned.names.get(each.key, ()))
        assert before <= set(again.names.get(each.key, ())), "what is owned_claims is kept at the next look"
    if not owned_claims:
        return
    edited = data.draw(st.sampled_from(owned_claims))
    wanted = data.draw(_tuples(1))
    after = assign_names([replace(each, wanted=wanted) if each is edited else each for each in owned_claims], names)
    for each in owned_claims:
        if each is not edited and each.held == each.wanted:
            assert after.names.get(each.key) == each.held
