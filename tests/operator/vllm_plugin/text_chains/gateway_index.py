"""The index that a gateway has of the cache of one vLLM, read from its stream of text chains."""

import json
from collections.abc import Iterable
from typing import Any

from paternoster_contract.text_chains.stream import Changes, Frame
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.proxy.prompt import read_prompt
from paternoster_gateway.routing.prefix_routing import NO_PREFIX, Prefix, PrefixRouting
from paternoster_gateway.text_chains.reader import ChainReader

CHAT, MODEL = "/v1/chat/completions", "chat"


class GatewayIndex:
    """The index of one gateway."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefixes = PrefixRouting()
        self.reader = ChainReader(url, MODEL, self.prefixes)
        self.num_removed = 0
        """Pieces."""

    @property
    def num_pieces(self) -> int:
        return self.prefixes.reported.count(self.url) if self.url in self.prefixes.reported else 0

    def apply(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self.num_removed += len(frame.removed) if isinstance(frame, Changes) else 0
            for step in self.reader.apply(frame):
                step()

    async def find(self, body: dict[str, Any]) -> Prefix:
        """The longest beginning of a chat that the vLLM holds."""
        prompt = await read_prompt(Call(CHAT, MODEL, json.dumps(body).encode(), {}), MODEL, "")
        assert prompt is not None
        return self.prefixes.find(MODEL, prompt, 0.0).get(self.url, NO_PREFIX)
