"""Lines of batches at the gateway: none is held, and none is demand of its fleet or keeps online requests elsewhere."""

from typing import Any

import pytest
from tests.gateway.routing.test_subsets_and_fallbacks import ADDRESSES

from paternoster_contract.access.identity import Identity, Lane
from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.admission.admission import ClientAdmission
from paternoster_gateway.admission.known_parties import KnownParties
from paternoster_gateway.call.router import Router
from paternoster_gateway.errors import GatewayError
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_gateway.routing.balancer import Balancer
from paternoster_gateway.routing.decisions import Queue, Result, RoutedRequest, Send

ONLINE = ClientAdmission("m", key_digest="digest", identity=Identity(tenant="acme"))
LINE = ClientAdmission("m", key_digest="digest", identity=Identity(tenant="acme"), lane=Lane.BATCH)


def make_router(ready: int, **fields: Any) -> Router:
    router = Router(Balancer(), lambda: 100.0, lambda: 0.0, lambda _: None)
    replicas = [Replica(name=each, url=f"http://{each}", ready=True) for each in ADDRESSES[:ready]]
    router.change_table(RoutingTable(models={"m": ModelRoute(replicas=replicas, **fields)}))
    return router


def send(router: Router, admission: ClientAdmission) -> tuple[RoutedRequest, Any]:
    request = router.open_request(admission, turn=admission.queue_turn(0, 10, None))
    return request, router.decide(request, admission)


@pytest.mark.parametrize("hold", [True, False])
def test_a_line_without_a_replica_is_refused_and_is_no_demand(hold: bool) -> None:
    router = make_router(0, hold=hold, retry_after_seconds=7)
    with pytest.raises(GatewayError, match="No replica of `m` has a place for this line of a batch") as refused:
        send(router, LINE)
    assert (refused.value.status, refused.value.to_headers()["Retry-After"]) == (503, "7")
    assert (router.count_held("m"), router.count_rejected("m"), router.list_waiting()) == (0, 0, [])
    if hold:
        assert isinstance(send(router, ONLINE)[1], Queue)
        assert router.count_held("m") == 1


def test_a_replica_without_a_place_for_lines_gets_online_requests_all_the_same() -> None:
    router = make_router(1)
    line, decision = send(router, LINE)
    assert isinstance(decision, Send)
    router.report_result(line, decision.replica.url, Result.FULL)
    assert not router.balancer._states.find_full(100.0)
    online, decision = send(router, ONLINE)
    router.report_result(online, decision.replica.url, Result.FULL)
    assert router.balancer._states.find_full(100.0)


def test_lines_are_a_party_of_their_own_and_in_no_number_of_the_fleets_traffic() -> None:
    assert LINE.party == ("m", "batch/acme") != ONLINE.party
    parties = KnownParties()
    parties.add_party(LINE)
    assert not parties._parties
    row, metrics = ModelRoute(replicas=[]), GatewayMetrics(clock=lambda: 5.0)
    metrics.begin_request("m", Lane.BATCH)

    def stats() -> Any:
        return metrics.build_stats({"m": row}, lambda _: 0, lambda _: 0).models["m"]

    assert (stats().batch_in_flight, stats().in_flight, stats().requests_total) == (1, 0, 0)
    metrics.end_request("m", "", Lane.BATCH)
    assert (stats().batch_in_flight, stats().idle_seconds) == (0, None)
