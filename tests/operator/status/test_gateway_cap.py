"""The live cap held by gateways: when, why, and which gateway has which part."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.operator.status.test_status import deployment, pod, status_of

from paternoster_contract.stats import GatewayModelStats, GatewayStats
from paternoster_operator.api.types.status import LLMDeploymentStatus
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.engines.adapter import RuntimeType
from paternoster_operator.engines.kinds import KINDS
from paternoster_operator.observed import Observed
from paternoster_operator.report.conditions import Access, find_condition
from paternoster_operator.report.gateway_cap import (
    GatewayCap,
    find_gateway_cap,
    find_immovable,
    share_places,
)
from paternoster_operator.routes.row import build_route

Resource = Callable[..., LLMDeployment]
FLEET = "uid-1"
VLLM = {"type": "VLLM", "image": "vllm:1"}
FAULT = "/paternoster/limits: HTTP 501: the scheduler Other has no max_num_active_reqs"
SERVES = Observed(deployment(1), (pod("a"),))


def gateway(instance: str, in_flight: int = 0, held: int = 0, fleet: str = FLEET) -> GatewayStats:
    model = GatewayModelStats(fleet=fleet, in_flight=in_flight, held=held, requests_total=0, failed_total=0)
    return GatewayStats(instance=instance, time=0, models={"m": model})


def vllm(resource: Resource, **spec: Any) -> LLMDeployment:
    return resource(model={"source": "file:///m"}, engine={"runtime": VLLM, "maxNumSeqs": 32}, **spec)


@pytest.mark.parametrize(
    ("type_", "faults", "reporting", "before", "found"),
    [
        (RuntimeType.VLLM, {"b": "x", "a": "y"}, True, None, "a: y"),
        (RuntimeType.VLLM, {}, True, "a: y", None),
        (RuntimeType.VLLM, {}, False, "a: y", "a: y"),
        (RuntimeType.VLLM, {}, False, None, None),
        (RuntimeType.PATERNOSTER, {"a": "not JSON"}, False, "a: y", None),
    ],
    ids=["a fault", "an engine reports", "silence", "nothing yet", "our own engine has an admin API"],
)
def test_gateways_hold_the_cap_where_an_engine_lacks_what_moves_it(
    type_: RuntimeType, faults: Mapping[str, str], reporting: bool, before: str | None, found: str | None
) -> None:
    assert find_immovable(KINDS[type_], faults, reporting, before) == found


@pytest.mark.parametrize(("target", "places"), [(8, 8), (64, 32), (0, 1)])
def test_the_bound_is_the_decided_cap_and_at_most_the_capacity(resource: Resource, target: int, places: int) -> None:
    cap = find_gateway_cap(vllm(resource), {"a": FAULT}, False, target, [gateway("g")])
    assert cap == GatewayCap(places, f"a: {FAULT}", {"g": places})


def test_an_operator_that_begins_has_what_the_status_says(resource: Resource) -> None:
    fleet = vllm(resource)
    fleet.status = {"gatewayCap": GatewayCap(8, "why", {"g": 8}).to_status()}
    assert find_gateway_cap(fleet, {}, False, 8, []) == GatewayCap(8, "why", {"g": 8})
    assert find_gateway_cap(fleet, {}, True, 8, []) is None


def test_parts_follow_demand_of_this_fleet() -> None:
    idle, busy = gateway("a", in_flight=2), gateway("b", in_flight=8, held=15)
    assert share_places(16, [idle, busy, gateway("c", held=99, fleet="other")], FLEET, {}) == {"a": 2, "b": 12, "c": 2}


def test_parts_stay_while_no_gateway_needs_more() -> None:
    before = {"a": 8, "b": 8}
    assert share_places(16, [gateway("a", in_flight=8), gateway("b")], FLEET, before) == before
    assert share_places(16, [], FLEET, before) == before
    assert share_places(16, [gateway("a", 8, held=9), gateway("b")], FLEET, before) == {"a": 14, "b": 2}
    assert share_places(16, [gateway("a", 8, held=2), gateway("b", 8, held=2)], FLEET, before) == before
    assert share_places(4, [gateway("a"), gateway("b")], FLEET, before) == {"a": 2, "b": 2}, "the cap was cut"
    assert share_places(16, [gateway("a")], FLEET, before) == {"a": 16}, "b ended"


counts = st.integers(0, 10**6)


@given(places=st.integers(1, 2**20), demand=st.dictionaries(st.text("ab", max_size=4), counts, max_size=9))
def test_parts_are_all_places_and_everybody_has_one(places: int, demand: dict[str, int]) -> None:
    parts = share_places(places, [gateway(name, wanted, wanted) for name, wanted in demand.items()], FLEET, {})
    assert parts.keys() == demand.keys()
    assert min(parts.values(), default=1) >= 1
    assert sum(parts.values()) == (max(places, len(demand)) if demand else 0)
    ordered = sorted(demand, key=lambda name: demand[name])
    assert all(parts[low] <= parts[high] + 1 for low, high in pairwise(ordered))


def test_the_status_says_who_holds_the_cap_and_why(resource: Resource) -> None:
    cap = GatewayCap(8, f"a: {FAULT}", {"g": 8})
    status = status_of(vllm(resource), SERVES, access=Access(("ride",), gateways=1, knowing=1), gateway_cap=cap)
    LLMDeploymentStatus.model_validate(status)
    assert status["gatewayCap"] == {"maxInFlight": 8, "parts": {"g": 8}, "reason": f"a: {FAULT}"}
    assert (status["engine"]["actuator"], status["engine"]["capabilities"]) == ("Gateway", ["liveCap"])
    condition = find_condition(status, "GatewayCap")
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("True", "LimitsNotMovable")
    assert condition["message"] == f"gateways send a replica at most 8 requests at a time: a: {FAULT}"


def test_without_a_gateway_the_status_says_that_nothing_holds_the_cap(resource: Resource) -> None:
    status = status_of(vllm(resource), SERVES, gateway_cap=GatewayCap(8, f"a: {FAULT}"))
    assert "gatewayCap" not in status
    assert (status["engine"]["actuator"], status["engine"]["capabilities"]) == ("None", [])
    condition = find_condition(status, "GatewayCap")
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("False", "NoGateway")
    assert FAULT in condition["message"]


def test_engines_that_are_steered_have_no_such_condition(resource: Resource) -> None:
    status = status_of(vllm(resource), SERVES)
    assert find_condition(status, "GatewayCap") is None
    assert status["engine"]["actuator"] == "Plugin"


def test_the_row_has_the_bound_and_the_parts(resource: Resource) -> None:
    fleet = vllm(resource)
    assert build_route(fleet).max_in_flight is None
    fleet.status = {"gatewayCap": GatewayCap(8, "why", {"g": 5, "h": 3}).to_status()}
    row = build_route(fleet)
    assert (row.max_in_flight, row.most_in_flight("g"), row.most_in_flight("new")) == (8, 5, 1)
    assert row.spare_in_flight == 0
    fleet.status = {"gatewayCap": GatewayCap(16, "why", {"g": 9, "h": 7}).to_status()}
    assert build_route(fleet).spare_in_flight == 1


@pytest.mark.parametrize(
    ("cap", "gateways", "capacity", "spare"),
    [(16, 2, 18, 1), (16, 2, 17, 0), (16, 3, 64, 0), (8, 1, 9, 1), (7, 1, 64, 0), (8, 0, 9, 1), (8, 0, 8, 0)],
)
def test_gateways_may_exceed_the_cap_by_an_eighth_within_the_capacity(
    cap: int, gateways: int, capacity: int, spare: int
) -> None:
    parts = {str(number): 1 for number in range(gateways)}
    assert GatewayCap(cap, "why", parts).count_spare(capacity) == spare


@pytest.mark.parametrize("parts", [{"g": 0}, {str(i): 1 for i in range(257)}])
def test_what_no_operator_writes_is_no_status(parts: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        LLMDeploymentStatus.model_validate({"gatewayCap": {"maxInFlight": 8, "parts": parts, "reason": "why"}})
