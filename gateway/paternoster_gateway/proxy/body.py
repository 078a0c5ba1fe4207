"""The fields of a body that the gateway reads, and the model's name at a server that has it under another one."""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, GetPydanticSchema, ValidationError
from pydantic_core import core_schema

from paternoster_contract.http.routes import STREAMED
from paternoster_contract.routing import RoutingTable
from paternoster_gateway.admission.admission import only_model
from paternoster_gateway.call.client_call import Call
from paternoster_gateway.errors import GatewayError, bad_request
from paternoster_http.open_requests import OpenRequest

MAX_CONTAINERS = 131_072
"""Arrays and objects of a body: parsing takes 0.1 µs for a number or a text and ten times that for one of these."""
TOKENS_AT_ONCE = 8192
"""Strings and brackets that are counted before the event loop serves other requests."""
SHOWN_BYTES = 64
"""Bytes of a body that is no object, for an error that states what it is."""
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_FIELD_OF_PARTS = re.compile(rb'"(model|priority|deadline_ms|stream)"[ \t\n\r]*:[ \t\n\r]*[\[{]')
_BYTES_PER_FIND = 512
"""For each of them of a body :func:`count_byte` looks for the next byte, before it counts the rest."""
_QUOTE = ord('"')
_NAME = re.compile(rb'[ \t\n\r]*:[ \t\n\r]*("[^"\\]*+(?:\\.[^"\\]*+)*+")', re.DOTALL)
"""What follows the key of a field that is a string."""
_UNFINISHED = re.compile(
    rb'"(?:m(?:o(?:d(?:e(?:l(?:"[ \t\n\r]*+(?::[ \t\n\r]*+(?:"(?:[^"\\]++|\\.)*+\\?)?)?)?)?)?)?)?)?\Z', re.DOTALL
)
"""The end of a piece of an answer that the next piece may make ``"model": "..."``."""
LONGEST_REVISION = 256
"""Characters that a server adds to its name of a model, behind ``@``."""
_OBJECT = re.compile(rb"[ \t\n\r]*\{")


def _valid_or_none(schema: core_schema.CoreSchema) -> GetPydanticSchema:
    """A value that fits ``schema``; None for any other, which the engine refuses."""
    lenient = core_schema.with_default_schema(schema, default=None, on_error="default")
    return GetPydanticSchema(lambda _source, _handler: lenient)


class BodyFields(BaseModel):
    """What the gateway reads; the parser checks the rest as JSON and makes no Python objects of it."""

    model_config = ConfigDict(strict=True)

    model: str | None = None
    priority: Annotated[int | None, _valid_or_none(core_schema.int_schema(strict=True))] = None
    deadline_ms: Annotated[int | None, _valid_or_none(core_schema.int_schema(strict=True, ge=1, lt=2**53))] = None
    stream: Annotated[bool | None, _valid_or_none(core_schema.bool_schema(strict=True))] = None


async def refuse_costly(body: bytes) -> int:
    """Raises :class:`GatewayError` (400) where parsing ``body`` would hold the event loop.

    Returns how many brackets begin an array or an object, or are in strings.

    That is where it has more than :data:`MAX_CONTAINERS` arrays and objects, or where one of :class:`BodyFields` is
    one: the parser makes objects in Python of a value of a wrong type, for its error. Brackets in strings do not count.
    Most bodies have too few brackets in all, which is counted in C; of others, strings and brackets are read one by
    one, with pauses, until there are too many.
    """
    brackets = count_byte(body, b"[") + count_byte(body, b"{")
    if brackets <= MAX_CONTAINERS and not _FIELD_OF_PARTS.search(body):
        return brackets
    containers = depth = 0
    for number, token in enumerate(_TOKEN.finditer(body), 1):
        first = body[token.start()]
        if first == _QUOTE:
            if depth == 1 and (field := _FIELD_OF_PARTS.match(body, token.start())) is not None:
                raise _error_of_parts(field[1].decode())
        elif first in b"[{":
            containers += 1
            depth += 1
            if containers > MAX_CONTAINERS:
                raise bad_request(f"The body has more than {MAX_CONTAINERS} arrays and objects.")
        else:
            depth -= 1
        if number % TOKENS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return brackets


def count_byte(body: bytes, byte: bytes) -> int:
    """How often ``byte`` is in ``body``, as ``body.count`` has it.

    That one compares each byte by itself: 145 us of an Intel Xeon for 400 kB. Where there are few, as in chats whose
    texts are long, ``find`` takes 4 to 70; where there are many, that adds two fifths.
    """
    at = -1
    for found in range(len(body) // _BYTES_PER_FIND):
        at = body.find(byte, at + 1)
        if at < 0:
            return found
    return len(body) // _BYTES_PER_FIND + body.count(byte, at + 1)


def read_fields(body: bytes) -> BodyFields:
    """The fields of the JSON object ``body``, UTF-8; ``model`` is None where it is empty.

    Raises :class:`GatewayError` (400) also for what JSON's grammar allows and no engine can read: half a surrogate
    pair, numbers of thousands of digits, and arrays in arrays beyond 200.
    """
    if not _OBJECT.match(body):
        # pydantic would make objects in Python of all that an array has, to show them in its error.
        body = body[:SHOWN_BYTES]
    try:
        fields = BodyFields.model_validate_json(body)
    except ValidationError as error:
        raise _error_of(error.errors(include_url=False, include_input=False)[0]) from None
    fields.model = fields.model or None
    return fields


async def read_call(
    path: str,
    body: bytes,
    key_digest: str,
    table: RoutingTable,
    headers: Mapping[str, str],
    open_request: OpenRequest,
    *,
    debug: bool = False,
) -> Call:
    """The call that a client's request is; ``headers``: those that its replica gets. Raises :class:`GatewayError`."""
    brackets = await refuse_costly(body)
    fields = read_fields(body)
    model = only_model(table, key_digest, time.time()) if fields.model is None else fields.model
    return Call(
        path, model, body, headers, fields.model is not None, brackets,
        fields.stream is True and path in STREAMED, debug, fields.priority or 0,
        None if fields.deadline_ms is None else fields.deadline_ms / 1000, open_request=open_request,
    )  # fmt: skip


def _error_of(error: Any) -> GatewayError:
    if error["type"] == "json_invalid":
        return bad_request(f"The body is not JSON: {error['ctx']['error']}")
    return _model_not_named()


def _model_not_named() -> GatewayError:
    return bad_request("The body must be an object, and its `model` the name of a served model.", "model")


def _error_of_parts(field: str) -> GatewayError:
    if field == "model":
        return _model_not_named()
    return bad_request(f"`{field}` must be {'true or false' if field == 'stream' else 'an integer'}.", field)


async def rename_in_body(body: bytes, name: str) -> bytes:
    """The JSON object ``body`` with ``name`` as its ``model``, where it is a string; each byte else is as it was."""
    written, pieces, done, depth = json.dumps(name).encode(), [], 0, 0
    for number, token in enumerate(_TOKEN.finditer(body), 1):
        first = body[token.start()]
        if first != _QUOTE:
            depth += 1 if first in b"[{" else -1
        elif depth == 1 and _is_model(token[0]) and (value := _NAME.match(body, token.end())) is not None:
            pieces += [body[done : value.start(1)], written]
            done = value.end(1)
        if number % TOKENS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return b"".join([*pieces, body[done:]])


def _is_model(token: bytes) -> bool:
    return token == b'"model"' or (b"\\" in token and len(token) < SHOWN_BYTES and json.loads(token) == "model")


def rename_in_answer(chunks: AsyncGenerator[bytes], upstream: str, name: str) -> AsyncGenerator[bytes]:
    """The pieces of an answer with ``name`` where a field ``model`` is ``upstream``, with or without a revision.

    All are as they were where ``upstream`` is empty.
    """
    return _rename_pieces(chunks, upstream, name) if upstream else chunks


async def _rename_pieces(chunks: AsyncGenerator[bytes], upstream: str, name: str) -> AsyncGenerator[bytes]:
    """Rename in JSON, and in events of JSON, in whose texts quotes are escaped.

    The end of a piece that may begin such a field, a few hundred bytes at most, is sent with the next piece.
    """
    escaped = "".join(r"\\?/" if char == "/" else re.escape(json.dumps(char)[1:-1]) for char in upstream)
    field = rb'("model"[ \t\n\r]*:[ \t\n\r]*)"' + escaped.encode() + rb'(?:@[^"\\]*+)?"'
    pattern, written, unsent = re.compile(field), json.dumps(name).encode(), b""
    longest = 2 * len(json.dumps(upstream)) + LONGEST_REVISION
    async with aclosing(chunks):
        async for piece in chunks:
            text, end = unsent + piece, 0
            for found in pattern.finditer(text):
                end = found.end()
            unfinished = _UNFINISHED.search(text, max(end, len(text) - longest))
            until = len(text) if unfinished is None else unfinished.start()
            unsent = text[until:]
            if until or not piece:
                yield pattern.sub(lambda match: match[1] + written, text[:until])
    if unsent:
        yield unsent
