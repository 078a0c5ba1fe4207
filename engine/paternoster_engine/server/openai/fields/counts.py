"""What is read of one body, counted while it is validated: a few bytes of JSON may be much to check."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from paternoster_http.json_bounds import JsonTooLarge

MAX_OBJECTS = 8192
"""Objects of one body that have fields of their own: messages, parts, items, calls, tools."""
MAX_FREE_VALUES = 65_536
"""Values and names of one body in all its fields that may be any JSON."""


@dataclass(slots=True)
class Counts:
    in_progress: bool = True
    objects: int = 0
    free_values: int = 0


_counts: ContextVar[Counts | None] = ContextVar("_counts", default=None)


def find_counts() -> Counts | None:
    """Counts of the body that this call has validated last, or validates."""
    return _counts.get()


def within_body() -> bool:
    """Whether a body is being validated."""
    current = _counts.get()
    return current is not None and current.in_progress


@contextmanager
def collect_counts() -> Iterator[None]:
    """Validate a body in this block. Its counts are kept: texts in it may be JSON that is read later."""
    current = Counts()
    _counts.set(current)
    try:
        yield
    finally:
        current.in_progress = False


def count_object() -> None:
    """Count an object of the body in progress; raises :class:`JsonTooLarge` above :data:`MAX_OBJECTS`."""
    current = _counts.get()
    if current is not None:
        current.objects += 1
        if current.objects > MAX_OBJECTS:
            raise JsonTooLarge(f"The body has more than {MAX_OBJECTS} messages, parts, items, calls and tools together")


def count_free_values(count: int) -> None:
    """Count values and names in a field of any JSON; raises :class:`JsonTooLarge` above :data:`MAX_FREE_VALUES`."""
    current = _counts.get()
    if current is not None:
        current.free_values += count
        if current.free_values > MAX_FREE_VALUES:
            raise JsonTooLarge(
                f"The body has more than {MAX_FREE_VALUES} values and names in schemas, arguments of calls, documents "
                "and other fields that may be any JSON"
            )
