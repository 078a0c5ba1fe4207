import json

import pytest

from hostile.bodies import EVERY, FIELDS, SHAPES, SHAPES_BY_PATH, HostileBody
from paternoster_contract.http import routes

SIZE = 50_000
NOT_JSON = {"one number", "nested lists", "nested objects", "a text without an end", "quotes"}


def test_every_route_that_takes_a_body_has_shapes_and_fields() -> None:
    post_paths = {route.path for route in routes.ROUTES if route.method == "POST" and route.kind is routes.Kind.API}
    same = {"/rerank", "/v2/rerank", "/score"}
    assert post_paths - same == set(FIELDS) == set(SHAPES_BY_PATH)


@pytest.mark.parametrize("body", SHAPES, ids=lambda body: f"{body.path} {body.name}")
def test_a_body_is_as_long_as_its_size_allows(body: HostileBody) -> None:
    data = body.of_size(SIZE + 2 * len(body.item))
    assert SIZE < len(data) <= SIZE + 2 * len(body.item)
    if body.name not in NOT_JSON:
        assert json.loads(data)


def test_no_two_bodies_have_one_name() -> None:
    assert len({(body.path, body.name) for body in EVERY}) == len(EVERY)


def test_a_size_without_room_for_two_items_is_refused() -> None:
    with pytest.raises(ValueError, match="size is 10"):
        SHAPES[0].of_size(10)
