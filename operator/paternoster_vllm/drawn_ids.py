"""Ids and times of a stream's frames, drawn from the gateway's id of the stream: another vLLM draws the same ones.

vLLM draws them by ``uuid``, ``time`` and ``random.choices`` in the modules of its API server. Those modules get the
objects below in their place, which do as the standard library does outside of a stream.
"""

import hashlib
import random
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from random import choices
from types import ModuleType
from typing import Any

IDS_MODULE = "vllm.utils"
"""Has ``random_uuid``."""
MODULES = ("vllm.entrypoints.", "vllm.parser", "vllm.reasoning", "vllm.tool_parsers")
"""Modules that write frames; the engine's clocks are not among them."""


class StreamDraws:
    """The ids of one stream in their order, and its time."""

    def __init__(self, hex_id: str, created: int) -> None:
        self._seed = bytes.fromhex(hex_id)
        self._count = 0
        self.created = created
        """Unix seconds."""

    def draw_bytes(self) -> bytes:
        """The next 16."""
        self._count += 1
        return hashlib.blake2b(self._count.to_bytes(8, "big"), key=self._seed, digest_size=16).digest()


CURRENT: ContextVar[StreamDraws | None] = ContextVar("paternoster_draws", default=None)


class ReplacedModule:
    """A module of the standard library, but for some functions."""

    def __init__(self, module: ModuleType, **functions: Callable[..., Any]) -> None:
        self._module = module
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def draw_uuid() -> uuid.UUID:
    """Draw in place of ``uuid.uuid4``."""
    draws = CURRENT.get()
    return uuid.uuid4() if draws is None else uuid.UUID(bytes=draws.draw_bytes(), version=4)


def read_time() -> float:
    """Read the time in place of ``time.time``."""
    draws = CURRENT.get()
    return time.time() if draws is None else float(draws.created)


def draw_choices(population: Sequence[Any], *args: Any, **kwargs: Any) -> list[Any]:
    """Draw in place of ``random.choices``."""
    draws = CURRENT.get()
    generator = random if draws is None else random.Random(draws.draw_bytes())
    return generator.choices(population, *args, **kwargs)


def replace_sources() -> None:
    """Give the modules of vLLM's API server the sources of this one; may be called again."""
    uuids, times = ReplacedModule(uuid, uuid4=draw_uuid), ReplacedModule(time, time=read_time)
    for name, module in list(sys.modules.items()):
        if name == IDS_MODULE or name.startswith(MODULES):
            for attribute, original, source in (
                ("uuid", uuid, uuids), ("time", time, times), ("choices", choices, draw_choices),
            ):  # fmt: skip
                if vars(module).get(attribute) is original:
                    setattr(module, attribute, source)
