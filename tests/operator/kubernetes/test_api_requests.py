"""Pauses that the API server asks for, with answers that no server has to give."""

from typing import Any

import pytest
from kubernetes.aio.client import ApiException
from prometheus_client import CollectorRegistry

from paternoster_operator.cluster.api_requests import ApiRequests
from paternoster_operator.cluster.port import ClusterError
from paternoster_operator.cluster.traffic import ApiTraffic

PATH = "/api/v1/namespaces/lifts/services/ride"


class RefusingClient:
    """Refuses every request with ``status`` and ``headers``."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.num_requests = 0
        self._error = ApiException(status=status, reason="because")
        self._error.headers = headers

    async def request(self, *_: Any, **__: Any) -> Any:
        self.num_requests += 1
        raise self._error


@pytest.mark.parametrize(
    ("status", "retry_after", "pause"),
    [(429, "7", 7), (429, "3600", 10), (429, "soon", 0), (429, None, 0), (503, "7", 0)],
)
async def test_nothing_is_sent_in_a_pause_that_the_server_asks_for(
    status: int, retry_after: str | None, pause: float
) -> None:
    now = 1000.0
    client = RefusingClient(status, {} if retry_after is None else {"Retry-After": retry_after})
    traffic, registry = ApiTraffic(), CollectorRegistry()
    traffic.register_metrics(registry)
    requests = ApiRequests(client, traffic, clock=lambda: now)  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match=f"HTTP {status}: because") as refused:
        await requests.send("patch", PATH)
    assert (refused.value.retriable, refused.value.retry_after_seconds) == (True, pause)
    if pause:
        now += pause - 1
        with pytest.raises(ClusterError, match=r"not sent: .* a pause \(429\), of which 1 s are left") as unsent:
            await requests.send("get", PATH)
        assert (unsent.value.retriable, unsent.value.retry_after_seconds) == (True, 1)
        now += 1
    assert client.num_requests == 1
    with pytest.raises(ClusterError, match=f"HTTP {status}"):
        await requests.send("get", PATH)
    assert client.num_requests == 2, "the pause is over"
    counted = registry.get_sample_value("paternoster_operator_api_request_seconds_count")
    assert counted == 2, "what is not sent takes no time"
    samples = {
        (each.labels["method"], each.labels["resource"], each.labels["code"]): each.value
        for family in registry.collect()
        for each in family.samples
        if each.name == "paternoster_operator_api_requests_total"
    }
    assert samples == {("patch", "services", str(status)): 1, ("get", "services", str(status)): 1}
