"""The counts and log lines that a gateway has of its calls."""

from paternoster_gateway.call.client_call import Call
from paternoster_gateway.routing.decisions import RoutedRequest
from paternoster_gateway.routing.prefix_routing import PromptTokens


class CallObserver:
    """Is called as the sessions of calls decide; by itself, it does nothing."""

    def on_retry(self, reason: str) -> None:
        """A call is sent to one more replica."""

    def on_retry_denied(self) -> None:
        """The retry budget of the fleet is used up."""

    def on_continued(self, request: RoutedRequest, reason: str) -> None:
        """An answer goes on at another replica."""

    def on_broken(self, request: RoutedRequest) -> None:
        """An answer ends without its rest."""

    def on_stopped_with(self, url: str, call: Call) -> None:
        """The replica at ``url`` stopped because of ``call``, whose body is refused from now on."""

    def on_quarantined(self, call: Call) -> None:
        """``call`` is answered that its body is refused."""

    def on_not_continued(self, url: str, reason: object) -> None:
        """The replica at ``url``, if it is not empty, does not go on with a stream."""

    def on_prompt_tokens(self, request: RoutedRequest, tokens: PromptTokens) -> None:
        """The first piece of an answer has come, which states ``tokens`` of its prompt."""
