"""The chain of a call: as the contract has it, and bounded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.text_chains.canonical_text import canonical_text
from paternoster_contract.text_chains.chain import COARSE, MAX_PIECES, chain_scope, text_chain
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.proxy import prompt as prompts
from paternoster_gateway.proxy.body import refuse_costly
from paternoster_gateway.proxy.prompt import read_prompt
from paternoster_gateway.routing.prefix_routing import PromptChain

CHAT = "/v1/chat/completions"


def chat(text: str, **fields: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}], **fields}).encode()


async def read(path: str, body: bytes, model: str, tenant: str) -> PromptChain | None:
    return await read_prompt(Call(path, model, body, {}, brackets=await refuse_costly(body)), model, tenant)


async def test_the_chain_is_that_of_the_contract_in_the_scope_of_tenant_and_salt() -> None:
    body = chat("é lift " * 100, cache_salt="salt")
    prompt = await read(CHAT, body, "m", "team")
    text = canonical_text(CHAT, json.loads(body))
    assert prompt is not None
    assert text is not None
    pieces = text_chain(chain_scope("m", "team", "salt"), text)
    assert list(zip(prompt.digests, prompt.ends, strict=True)) == pieces
    assert prompt.size == len(text.encode())
    for other in (("n", "team"), ("m", "another")):
        others = await read(CHAT, body, *other)
        assert others is not None
        assert set(others.digests).isdisjoint(prompt.digests)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, chat("too short for a piece")),
        ("/v1/embeddings", b'{"input": "' + b"x" * 400 + b'"}'),
        (CHAT, b'{"messages": 3}'),
        ("/v1/completions", b'{"prompt": ' + b"[" * 150 + b"]" * 150 + b"}"),
    ],
)
async def test_what_has_no_text_has_no_chain(path: str, body: bytes) -> None:
    assert await read(path, body, "m", "") is None


@pytest.mark.parametrize(
    "body",
    [
        chat("x" * prompts.MAX_BYTES),
        b'{"messages": [' + b",".join([b'{"role": "user", "content": "a"}'] * 20_000) + b"]}",
        b'{"prompt": [' + b"1," * 200_000 + b"1]}",
        b'{"messages": [' + (b"[" * 120 + b"]" * 120 + b",") * 150 + b"]}",
    ],
    ids=["bytes", "messages", "numbers", "arrays in arrays"],
)
async def test_a_body_that_is_costly_to_read_is_routed_by_load(body: bytes) -> None:
    assert await read(CHAT, body, "m", "") is None


async def test_a_long_text_has_pieces_up_to_its_end() -> None:
    prompt = await read(CHAT, chat("lift " * 180_000), "m", "")
    assert prompt is not None
    assert prompt.size > 900_000
    assert prompt.size - COARSE < prompt.ends[-1] <= prompt.size
    assert len(prompt.digests) < MAX_PIECES, "a body that is read has no more text"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["messages", "role", "content", "text", "tools", "cache_salt", "prompt", "tool_calls", "function"]
                ),
                inner,
            )
        ),
    )
)
async def test_no_body_is_an_error(body: Any) -> None:
    for path in (CHAT, "/v1/completions", "/v1/responses", "/v1/messages"):
        await read(path, json.dumps({"messages": body, "prompt": body, "input": body}).encode(), "m", "")
