"""Expressions for names of modules match as in ``re`` and peft, in a time that no pattern makes long."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peft.utils.other import get_pattern_key

from paternoster_engine.model.adapters.module_patterns import PatternTable, compile_pattern
from paternoster_engine.model.errors import UnsupportedModelError

NAMES = st.sampled_from(
    ["", "a", "ab", "b.a", "a.b", "aab.ab", "layers.10.a", "model.layers.1.q_proj", "model.layers.2.mlp.up_proj"]
)
ATOMS = st.sampled_from(
    ["a", "b", ".", r"\.", "[ab]", "[^a]", r"\d", r"\w", "layers", "q_proj", "[0-3]", "_", "^", "$"]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{2,}"])).map(
            lambda both: f"(?:{both[0]}){both[1]}"
        ),
    ),
    max_leaves=8,
)


@given(pattern=PATTERNS, name=NAMES)
def test_a_name_matches_as_re_has_it(pattern: str, name: str) -> None:
    assert compile_pattern(pattern)(name) == (re.fullmatch(pattern, name) is not None)


@given(patterns=st.lists(PATTERNS, max_size=3), name=NAMES)
def test_the_first_pattern_is_that_of_peft(patterns: list[str], name: str) -> None:
    expected: Any = get_pattern_key(patterns, name)
    # It gives the name back where none fits, which may be a pattern itself.
    found = PatternTable({pattern: pattern for pattern in patterns}).find(name)
    assert found == (expected if expected in patterns else None)


def test_a_pattern_that_searches_back_without_end_costs_no_time() -> None:
    assert not compile_pattern("((a|a)*)*" * 20 + "!")("a" * 200)
    assert compile_pattern("(a?){3000}" + "a" * 30)("a" * 30)


@pytest.mark.parametrize("pattern", ["(.?" * 150 + ")+" * 150, "(?:" * 250 + "a" + ")?" * 250])
def test_a_pattern_that_is_too_deep_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedModelError, match="more than 16 groups and repeats within each other"):
        compile_pattern(pattern)


def test_repeats_that_multiply_are_refused() -> None:
    matches = compile_pattern("(.?" * 7 + ")*" * 7 + "!", what="rank_pattern")
    with pytest.raises(UnsupportedModelError, match=r"rank_pattern .*must take at most 1000000 steps"):
        for _ in range(1000):
            matches("a" * 60)


def test_many_plain_names_are_looked_up() -> None:
    table = PatternTable({f"layers.{number}.q_proj": number for number in range(4096)})
    assert [table.find(f"model.layers.{number}.q_proj") for number in range(4100)] == [*range(4096), *[None] * 4]
    spread = PatternTable({"a" * length: length for length in range(1, 4097)})
    with pytest.raises(UnsupportedModelError, match="must take at most 1000000 steps"):
        for _ in range(1000):
            spread.find("model.layers.0.q_proj")


@pytest.mark.parametrize(
    "pattern", ["(", "a" * 3000, "(?i)a", "(?=a)a", r"(a)\1", r"\ba", "(?i:a)", "a{4294967296}", "(" * 900 + ")" * 900]
)
def test_what_is_not_followed_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(UnsupportedModelError, match=r"pattern .*: must be an expression of"):
        compile_pattern(pattern)
