"""Counts and logs what the sessions of calls decide."""

import logging

from paternoster_gateway.call.client_call import Call
from paternoster_gateway.call.observer import CallObserver
from paternoster_gateway.metrics import GatewayMetrics
from paternoster_gateway.routing.decisions import RoutedRequest
from paternoster_gateway.routing.prefix_routing import PromptTokens

log = logging.getLogger(__name__)


class RecordedCalls(CallObserver):
    """The calls of one gateway, in its metrics and its log."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics

    def on_retry(self, reason: str) -> None:
        self._metrics.retries.labels(reason).inc()

    def on_retry_denied(self) -> None:
        self._metrics.retries_denied.inc()

    def on_continued(self, request: RoutedRequest, reason: str) -> None:
        self._metrics.continued.labels(self._metrics.label_of(request.model), reason).inc()

    def on_broken(self, request: RoutedRequest) -> None:
        self._metrics.broken.labels(self._metrics.label_of(request.model)).inc()

    def on_stopped_with(self, url: str, call: Call) -> None:
        log.warning(
            "%s stopped while it had a request to %s of %d bytes: it is sent to no other replica",
            url, call.path, len(call.body),
        )  # fmt: skip

    def on_quarantined(self, call: Call) -> None:
        self._metrics.quarantined.inc()

    def on_not_continued(self, url: str, reason: object) -> None:
        log.warning("%s does not go on with a stream: %s", url or "no replica", reason)

    def on_prompt_tokens(self, request: RoutedRequest, tokens: PromptTokens) -> None:
        if (pick := request.pick) is not None:
            stages = {"promised": pick.promised_tokens, "captured": pick.held.tokens, "delivered": tokens.cached}
            self._metrics.count_cached_tokens(request.model, tokens.prompt, stages)
