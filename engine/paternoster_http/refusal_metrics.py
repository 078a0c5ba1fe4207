"""A metric of requests that a process refused, or gave up for others, for want of what its ports share out."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily

from paternoster_http.open_requests import refusals


class ShareRefusals:
    """A collector for a registry; by ``resource``: requests (their places) or bytes (in memory)."""

    def __init__(self, name: str) -> None:
        """``name`` of the metric, without ``_total``."""
        self._name = name

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            self._name, "Requests refused or given up beyond their sender's share, by resource.", labels=["resource"]
        )
        for resource, count in refusals.items():
            family.add_metric([resource], count)
        yield family
