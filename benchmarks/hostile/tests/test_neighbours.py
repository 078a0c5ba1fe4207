"""When a row fails, and that each row of the table has its attack."""

import json

import pytest

from hostile.attackers.attack_kinds import LARGE_BODIES, AttackKinds, large_body
from hostile.attackers.attack_rows import ROWS
from hostile.attackers.claiming_engine import BEGINNINGS, KINDS, REQUESTS, SHARED_PART, find_pieces, make_prompts
from hostile.attackers.raw_requests import BODY_BYTES
from hostile.felt import Felt, compare, passes
from hostile.neighbours import summarize, table


def felt(first: float, between: float = 0.01, refused: int = 0) -> Felt:
    return Felt([first] * 20, [between] * 20, refused)


@pytest.mark.parametrize(
    ("alone", "attacked", "near"),
    [
        (felt(0.1), felt(0.29), True),  # 0.2 s more
        (felt(0.1), felt(0.31), False),
        (felt(1.0), felt(1.49), True),  # 1.5 times
        (felt(1.0), felt(1.51), False),
        (felt(0.1, 0.01), felt(0.1, 0.3), False),
        (felt(0.1), felt(0.1, refused=1), False),
        (felt(0.1), Felt(), False),  # nothing came
        (Felt([0.1]), Felt([0.1]), True),  # an answer without tokens
    ],
)
def test_a_client_is_near_enough_to_alone(alone: Felt, attacked: Felt, near: bool) -> None:
    assert passes(attacked, compare(alone, attacked)) is near


async def test_each_row_has_a_kind_of_request_and_no_kind_is_left_out() -> None:
    kinds = AttackKinds(["http://127.0.0.1:1"], None).kinds  # type: ignore[arg-type]
    assert not kinds.keys() & KINDS.keys()
    assert sorted(row.kind for row in ROWS) == sorted(kinds)


def test_large_bodies_are_as_large_as_they_may_be() -> None:
    assert all(BODY_BYTES - 1000 < len(large_body(*body)) <= BODY_BYTES for body in LARGE_BODIES)


def test_rows_are_shown_with_and_without_tokens() -> None:
    rows = [("a", felt(0.1), felt(0.5)), ("b", Felt([0.1]), Felt([0.1]))]
    found = [{"name": name, "alone": alone, "attacked": attacked, "answers": {}} for name, alone, attacked in rows]
    summary = summarize(found)
    assert [row["passes"] for row in summary] == [False, True]
    assert table(summary).row_count == 2
    json.dumps(summary)


def test_prompts_that_are_claimed_share_as_many_beginnings_as_stated() -> None:
    prompts = make_prompts()
    pieces = [set(find_pieces(prompt)) for prompt in prompts]
    shared = sum(any(each & other for other in pieces if other is not each) for each in pieces)
    assert len(set(prompts)) == len(prompts) == REQUESTS
    assert abs(shared - SHARED_PART * REQUESTS) <= BEGINNINGS
