"""A server of a scripted model, asked in Anthropic's API, and what its tests ask."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
from tests.engine.server.scripted_server import Server, scripted_server
from tests.engine.server.tool_templates import QWEN3

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.server.app import create_app

ROOM = {"max_model_len": 2048, "max_batched_tokens": 2048, "num_blocks": 512}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"name": "weather", "description": "of a city", "input_schema": SCHEMA}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "%s"}}\n</tool_call>'
QUESTION: list[Any] = [{"role": "user", "content": "Where does it rain?"}]
MESSAGE_FIELDS: dict[str, Any] = {"model": "scripted", "max_tokens": 500, "messages": QUESTION}
USE = {"type": "tool_use", "id": "t", "name": "weather", "input": {}}
FORMAT = {"type": "json_schema", "schema": SCHEMA}
CALLING = {"role": "assistant", "content": [USE]}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "x"}


@asynccontextmanager
async def serving(
    tokenizer: Tokenizer, text: str, **config: Any
) -> AsyncIterator[tuple[Server, anthropic.AsyncAnthropic]]:
    """A server whose template has tools and reasoning."""
    async with scripted_server(tokenizer.with_template(QWEN3))(text, **ROOM | config) as server:
        transport = httpx2.ASGITransport(create_app(server.state), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport) as http:
            yield (
                server,
                anthropic.AsyncAnthropic(base_url="http://engine", api_key="x", http_client=http, max_retries=0),
            )


def script_answer(server: Server, tokenizer: Tokenizer, text: str) -> None:
    server.runner.tokens = [*tokenizer.encode(text), tokenizer.eos_token_ids[0]]
