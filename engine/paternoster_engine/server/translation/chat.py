"""The chat completion into which a client's request is translated, and what its answer needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paternoster_engine.server.openai.requests import ChatCompletionRequest
from paternoster_engine.server.translation.names import ClientNames, chat_request
from paternoster_engine.server.translation.tools import Offer


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat that answers the request of a client."""

    body: Mapping[str, Any]
    offer: Offer = field(default_factory=Offer)

    def build_request(self, names: ClientNames) -> tuple[ChatCompletionRequest, ClientNames]:
        """Return the validated request and the client's names of its fields; raises ``RequestValidationError``."""
        names = names.with_tools(self.offer.tools.values())
        request = chat_request(self.body, names)
        request.hide_tools(self.offer.shown_later)
        return request, names
