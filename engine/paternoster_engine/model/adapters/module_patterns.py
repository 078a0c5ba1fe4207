"""Expressions for the names of modules, as PEFT's files have them.

``re`` searches back, for some patterns without end. These are followed by the set of places that each part may end at,
and their steps are counted, as repeats within repeats multiply.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Generic, TypeVar

from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import shorten_value

LONGEST_PATTERN = 2000
"""Characters."""
MOST_NESTED = 16
"""Groups and repeats within each other."""
MOST_STEPS = 1_000_000
"""Steps for all patterns and modules of one adapter."""
Places = frozenset[int]
T = TypeVar("T")


class MatchSteps:
    """Steps that all patterns of an adapter may still take."""

    def __init__(self, left: int = MOST_STEPS) -> None:
        self._left = left

    def take_steps(self, count: int) -> None:
        """Raises ``TimeoutError`` once there are too few."""
        self._left -= count
        if self._left < 0:
            raise TimeoutError


def compile_pattern(pattern: str, steps: MatchSteps | None = None, *, what: str = "pattern") -> Callable[[str], bool]:
    """Whether all of a name matches; raises :class:`UnsupportedModelError` for what is not followed.

    ``what``: the field that has it, for messages.
    """
    steps = steps or MatchSteps()
    try:
        if len(pattern) > LONGEST_PATTERN:
            raise ValueError(f"it has more than {LONGEST_PATTERN} characters")
        tree = _parser.parse(pattern)
        if tree.state.flags & ~re.UNICODE:
            raise ValueError("it has flags")
        # What cannot be followed is refused now, and not at the first name that gets so far.
        _check_parts(tree, 0)
    except (ValueError, OverflowError, RecursionError, re.error) as error:
        raise UnsupportedModelError(
            f"{what} {shorten_value(pattern)}: must be an expression of literals, sets, groups, choices and repeats: "
            f"{error}"
        ) from error

    def matches(name: str) -> bool:
        try:
            return len(name) in _follow(tree, name, frozenset([0]), steps)
        except TimeoutError:
            raise UnsupportedModelError(
                f"{what} {shorten_value(pattern)}: all patterns of an adapter must take at most {MOST_STEPS} steps"
            ) from None

    return matches


def _check_parts(parts: Any, depth: int) -> None:
    if depth > MOST_NESTED:
        raise ValueError(f"it has more than {MOST_NESTED} groups and repeats within each other")
    for operation, argument in parts:
        if operation is _constants.SUBPATTERN:
            _, added, removed, inner = argument
            if added or removed:
                raise ValueError("it has flags")
            _check_parts(inner, depth + 1)
        elif operation in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            _check_parts(argument[2], depth + 1)
        elif operation is _constants.BRANCH:
            for branch in argument[1]:
                _check_parts(branch, depth + 1)
        elif operation is _constants.AT:
            if argument not in (_constants.AT_BEGINNING, _constants.AT_END):
                raise ValueError("it has an anchor that is neither ^ nor $")
        elif operation not in (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN):
            raise ValueError(f"it has {str(operation).lower()}")


def _follow(parts: Any, name: str, places: Places, steps: MatchSteps) -> Places:
    """Places at which ``parts``, one after another, may end that begin at one of ``places``."""
    for operation, argument in parts:
        if not places:
            break
        steps.take_steps(len(places))
        places = _follow_part(operation, argument, name, places, steps)
    return places


def _follow_part(operation: Any, argument: Any, name: str, places: Places, steps: MatchSteps) -> Places:
    if operation is _constants.SUBPATTERN:
        return _follow(argument[3], name, places, steps)
    if operation is _constants.BRANCH:
        return frozenset().union(*(_follow(branch, name, places, steps) for branch in argument[1]))
    if operation in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
        least, most, inner = argument
        return _follow_repeats(least, int(most), inner, name, places, steps)
    if operation is _constants.AT:
        return places & {0 if argument is _constants.AT_BEGINNING else len(name)}
    fits = _fitting(operation, argument)
    return frozenset(place + 1 for place in places if place < len(name) and fits(name[place]))


def _follow_repeats(least: int, most: int, inner: Any, name: str, places: Places, steps: MatchSteps) -> Places:
    # A repeat that goes on for longer than the name adds nothing.
    for _ in range(min(least, len(name) + 1)):
        before, places = places, _follow(inner, name, places, steps)
        if places == before:
            break
    reached = fresh = places
    for _ in range(min(most - least, len(name) + 1)):
        fresh = _follow(inner, name, fresh, steps) - reached
        if not fresh:
            break
        reached |= fresh
    return reached


@lru_cache(1024)
def _one_of(items: tuple[Any, ...]) -> Callable[[str], bool]:
    """A set, compiled by ``re`` from what it was parsed as: single characters cannot search back."""
    text = "".join(map(_spell_item, items))
    compiled = re.compile(f"[{text}]")
    return lambda character: compiled.fullmatch(character) is not None


def _spell_item(item: tuple[Any, Any]) -> str:
    operation, argument = item
    if operation is _constants.NEGATE:
        return "^"
    if operation is _constants.LITERAL:
        return re.escape(chr(argument))
    if operation is _constants.RANGE:
        return "-".join(re.escape(chr(end)) for end in argument)
    names = {"digit": r"\d", "not_digit": r"\D", "word": r"\w", "not_word": r"\W", "space": r"\s", "not_space": r"\S"}
    return names[str(argument).lower().removeprefix("category_")]


def _fitting(operation: Any, argument: Any) -> Callable[[str], bool]:
    if operation is _constants.LITERAL:
        return lambda character: ord(character) == argument
    if operation is _constants.NOT_LITERAL:
        return lambda character: ord(character) != argument
    if operation is _constants.ANY:
        return lambda character: character != "\n"
    return _one_of(tuple(argument))


def is_plain(pattern: str) -> bool:
    """Whether ``pattern`` has no signs but dots, which stand for any one character."""
    return re.fullmatch(r"[\w.-]+", pattern) is not None


class PatternTable(Generic[T]):
    """Values by pattern: the first pattern that fits a name, or its end after a dot, as PEFT has it."""

    def __init__(self, values: Mapping[str, T], steps: MatchSteps | None = None, *, what: str = "pattern") -> None:
        """Raises :class:`UnsupportedModelError` for a pattern that is not followed."""
        self._values, self._steps, self._what = list(values.values()), steps or MatchSteps(), what
        self._plain: dict[tuple[int, tuple[int, ...]], dict[str, int]] = {}
        """Numbers of plain patterns, by their length and where they have dots, which stand for any character."""
        self._expressions: dict[int, Callable[[str], bool]] = {}
        for number, pattern in enumerate(values):
            if is_plain(pattern):
                dots = tuple(place for place, sign in enumerate(pattern) if sign == ".")
                self._plain.setdefault((len(pattern), dots), {})[pattern] = number
            else:
                self._expressions[number] = compile_pattern(rf"(.*\.)?({pattern})$", self._steps, what=what)

    def find(self, name: str) -> T | None:
        """Raises :class:`UnsupportedModelError` once the patterns have taken too many steps."""
        found = self._find_plain(name)
        for number, matches in self._expressions.items():
            if number < found and matches(name):
                found = number
        return self._values[found] if found < len(self._values) else None

    def _find_plain(self, name: str) -> int:
        """Number of the first one that fits, or how many patterns there are."""
        found = len(self._values)
        try:
            self._steps.take_steps(len(self._plain))
        except TimeoutError:
            raise UnsupportedModelError(
                f"{self._what}: all patterns of an adapter must take at most {MOST_STEPS} steps"
            ) from None
        for (length, dots), numbers in self._plain.items():
            if length > len(name) or (length < len(name) and name[-length - 1] != "."):
                continue
            end = list(name[-length:])
            for place in dots:
                end[place] = "."
            found = min(found, numbers.get("".join(end), found))
        return found
