"""Long answers made piece by piece on the event loop: others have their turn in between."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json

T = TypeVar("T")
U = TypeVar("U")

PIECE = 128
"""Items between two turns of others: with 20 other tokens in each place 5 ms."""


async def made_in_pieces(items: Sequence[T], make: Callable[[Sequence[T]], Iterable[U]]) -> list[U]:
    """What ``make`` makes of each piece of ``items``, one after another."""
    made: list[U] = []
    for start in range(0, len(items), PIECE):
        if start:
            await asyncio.sleep(0)
        made += make(items[start : start + PIECE])
    return made


async def json_in_pieces(answer: BaseModel, *, exclude_unset: bool = False) -> bytes:
    """The bytes of ``model_dump_json``. Long lists are of models, or of plain values as they are sent.

    ``exclude_unset``: as there.
    """
    return b"".join([piece async for piece in _json_pieces(answer, exclude_unset)])


async def _json_pieces(value: Any, exclude_unset: bool) -> AsyncIterator[bytes]:
    match value:
        case BaseModel():
            fields = list(_fields_of_model(value, exclude_unset))
            for index, (name, inner) in enumerate(fields):
                yield (b"," if index else b"{") + to_json(name) + b":"
                async for piece in _json_pieces(inner, exclude_unset):
                    yield piece
            yield b"}" if fields else b"{}"
        case [BaseModel(), *_]:
            for index, inner in enumerate(value):
                yield b"," if index else b"["
                async for piece in _json_pieces(inner, exclude_unset):
                    yield piece
            yield b"]"
        case list() | tuple() if len(value) > PIECE:
            for start in range(0, len(value), PIECE):
                yield (b"," if start else b"[") + _dump_json(value[start : start + PIECE])[1:-1]
                await asyncio.sleep(0)
            yield b"]"
        case _:
            yield _dump_json(value)


def _fields_of_model(model: BaseModel, exclude_unset: bool) -> Iterator[tuple[str, Any]]:
    for name in type(model).model_fields:
        if not exclude_unset or name in model.model_fields_set:
            yield name, getattr(model, name)
    yield from (model.model_extra or {}).items()


def _dump_json(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null")
