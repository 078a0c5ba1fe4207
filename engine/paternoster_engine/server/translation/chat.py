"""What the request of a client becomes: a chat, and what its answer is told with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paternoster_engine.server.openai.requests import ChatCompletionRequest
from paternoster_engine.server.translation.names import Names, chat_request
from paternoster_engine.server.translation.tools import Offer


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat that answers the request of a client."""

    body: Mapping[str, Any]
    offer: Offer = field(default_factory=Offer)

    def request(self, names: Names) -> tuple[ChatCompletionRequest, Names]:
        """The checked request, and the client's words for what is found later; raises ``RequestValidationError``."""
        names = names.with_tools(self.offer.tools.values())
        request = chat_request(self.body, names)
        request.hide_tools(self.offer.shown_later)
        return request, names
