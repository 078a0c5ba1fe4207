"""Records through which files of the product a request passes, in order."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]


class Entry(NamedTuple):
    """A call of a function."""

    file: str
    function: str
    caller: str | None
    """File of the function that called; None where it was scheduled, as a task is."""
    thread: str


class RequestWalk:
    """Each call of a function of the product once, also of a coroutine. Reads of attributes are none, properties' too.

    A lambda or comprehension belongs to the function that has it.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._properties = _find_property_codes()
        self._frames: set[FrameType] = set()

    def record_call(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or code in self._properties or code.co_name.startswith("<"):
            return
        # A coroutine that goes on is a call for the profiler.
        if (file := _product_file(code)) is None or frame in self._frames:
            return
        self._frames.add(frame)
        self.entries.append(Entry(file, code.co_qualname, _calling_file(frame), threading.current_thread().name))


@contextmanager
def recorded_walk() -> Iterator[RequestWalk]:
    """Records this thread, and those that begin within."""
    walk = RequestWalk()
    threading.setprofile(walk.record_call)
    sys.setprofile(walk.record_call)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def stays_of(entries: list[Entry]) -> list[str]:
    """Files in the order of ``entries``; calls in one file without another's between are one stay."""
    return [file for file, _ in groupby(entry.file for entry in entries)]


def _product_file(code: CodeType) -> str | None:
    path = Path(code.co_filename)
    inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ("common", "engine")
    return path.relative_to(ROOT).as_posix() if inside else None


def _calling_file(frame: FrameType) -> str | None:
    back = frame.f_back
    while back is not None:
        if (file := _product_file(back.f_code)) is not None:
            return file
        back = back.f_back
    return None


def _find_property_codes() -> set[CodeType]:
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("paternoster_")]
    values = [value for module in modules for value in vars(module).values()]
    classes = [value for value in values if isinstance(value, type) and value.__module__.startswith("paternoster_")]
    getters = [
        attribute.fget if isinstance(attribute, property) else attribute.func
        for cls in classes
        for attribute in vars(cls).values()
        if isinstance(attribute, property | cached_property)
    ]
    return {getter.__code__ for getter in getters if getter is not None}
