"""A layer before vLLM's application: it answers ``GET /text-chains``, and keeps the bodies of calls for their text."""

import logging
import os
from typing import Any

from paternoster_vllm.asgi import App, Receive, Scope, Send, read_body
from paternoster_vllm.continuation import GATEWAY_ENV, PATHS
from paternoster_vllm.text_chains import UTILITY
from paternoster_vllm.text_chains.prompt_pieces import CURRENT, CallBody, PromptPieces
from paternoster_vllm.text_chains.publisher import TextChainPublisher

log = logging.getLogger(__name__)

TEXT_CHAINS = "/text-chains"
MAX_BYTES = 2**20
"""Size of a body that is read for its text; gateways read no longer ones."""


class TextChains:
    """Publishes to gateways alone: where clients have keys of the API, they must not read what others asked."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._publisher = TextChainPublisher()
        self._has_pieces = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and os.environ.get(GATEWAY_ENV):
            if scope["path"] == TEXT_CHAINS and scope["method"] == "GET":
                await self._publish(scope, receive, send)
                return
            if scope["path"] in PATHS and scope["method"] == "POST" and self._has_pieces and self._publisher.is_read():
                await self._pass_on(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _publish(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope["app"].state
        client = state.engine_client
        try:
            names = state.vllm_config.model_config.served_model_name
            model = names if isinstance(names, str) else names[0]
            if not self._has_pieces:
                PromptPieces(client, model).replace_method()
                self._has_pieces = True
            call = client.engine_core.call_utility_async
        except (AttributeError, IndexError) as error:
            log.warning("paternoster_vllm: text chains are not published: %s", error)
            await self._app(scope, receive, send)
            return

        async def read_chains(instance: str, after: int) -> dict[str, Any]:
            found: dict[str, Any] = await call(UTILITY, instance, after)
            return found

        await self._publisher.answer_request(scope, receive, send, model, read_chains)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, read_again = await read_body(receive, MAX_BYTES)
        token = CURRENT.set(None if body is None else CallBody(scope["path"], body))
        try:
            await self._app(scope, read_again, send)
        finally:
            CURRENT.reset(token)
