"""Follows calls of the product: through which files a journey passes, in order, and how often it comes back to one."""

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BOUNDS = Path(__file__).with_name("bounds.json")
PRODUCT = ("batch", "common", "engine", "gateway", "kernels", "load", "operator", "simulator")


class Call(NamedTuple):
    """A call of a function of the product."""

    file: str
    function: str
    caller: str | None
    """File of the function that called; None where it was scheduled, as a task is."""
    thread: str


class Walk:
    """Each call of a function of the product once, also of a coroutine. Reads of attributes are none, properties' too.

    A lambda or comprehension belongs to the function that has it.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._properties = _find_property_codes()
        self._frames: set[FrameType] = set()

    def record_call(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or code in self._properties or code.co_name.startswith("<"):
            return
        # A coroutine that goes on is a call for the profiler.
        if (file := find_product_file(code)) is None or frame in self._frames:
            return
        self._frames.add(frame)
        self.calls.append(Call(file, code.co_qualname, _find_caller(frame), threading.current_thread().name))

    def cut(self, begin: Callable[..., object], end: Callable[..., object], folders: Sequence[str]) -> list[Call]:
        """The calls in ``folders`` from the first of ``begin`` to the first of ``end`` after it."""
        places = [(call.file, call.function) for call in self.calls]
        first = _find_place(places, begin)
        last = first + _find_place(places[first:], end)
        return [call for call in self.calls[first : last + 1] if call.file.startswith(tuple(folders))]


@contextmanager
def recorded_walk() -> Iterator[Walk]:
    """Records this thread, and those that begin within."""
    walk = Walk()
    threading.setprofile(walk.record_call)
    sys.setprofile(walk.record_call)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class Length(NamedTuple):
    """Number of times that a walk enters a file, and of those in which it was there before."""

    stays: int
    returns: int

    @classmethod
    def measure(cls, calls: Sequence[Call]) -> "Length":
        stays = list_stays(calls)
        return cls(len(stays), len(stays) - len(set(stays)))


def read_bounds() -> dict[str, Length]:
    """The longest that each journey may be, by its name."""
    return {name: Length(**bound) for name, bound in json.loads(BOUNDS.read_text(encoding="utf-8")).items()}


def write_bounds(bounds: Mapping[str, Length]) -> None:
    lines = [f"  {json.dumps(name)}: {json.dumps(length._asdict())}" for name, length in bounds.items()]
    BOUNDS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def list_faults(lengths: Mapping[str, Length], bounds: Mapping[str, Length]) -> list[str]:
    """A line for each figure that is not its bound: one above is too long, one below lets the bound fall."""
    return [
        f"{name}: {value} {figure}, at most {bound}: shorten the journey (scripts/journeys --show {name})"
        if value > bound
        else f"{name}: {value} {figure}, and the bound is {bound}: lower it (scripts/journeys --lower)"
        for name, length in lengths.items()
        for figure, value, bound in zip(Length._fields, length, bounds[name], strict=True)
        if value != bound
    ]


def lower_bounds(lengths: Mapping[str, Length], bounds: Mapping[str, Length]) -> dict[str, Length]:
    """``bounds`` where they are lower, or new, and no figure higher than it was."""
    return {name: Length(*map(min, length, bounds.get(name, length))) for name, length in lengths.items()}


def list_stays(calls: Sequence[Call]) -> list[str]:
    """Files in the order of ``calls``; calls in one file without another's between are one stay."""
    return [file for file, _ in groupby(call.file for call in calls)]


def _find_place(places: Sequence[tuple[str, str]], function: Callable[..., object]) -> int:
    code = function.__code__
    place = (find_product_file(code), code.co_qualname)
    if place not in places:
        raise LookupError(f"the walk has no call of {code.co_qualname} of {code.co_filename}")
    return places.index(place)


def find_product_file(code: CodeType) -> str | None:
    path = Path(code.co_filename)
    inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PRODUCT
    return path.relative_to(ROOT).as_posix() if inside else None


def _find_caller(frame: FrameType) -> str | None:
    back = frame.f_back
    while back is not None:
        if (file := find_product_file(back.f_code)) is not None:
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
