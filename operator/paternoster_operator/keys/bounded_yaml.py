"""YAML from a Secret that a tenant writes, loaded in bounded time and memory. Pure.

Aliases and merge keys let 400 characters stand for millions of nodes, and deep nesting takes the parser quadratic
time, so a pass over the parser's events refuses both before anything is built.
"""

from typing import Any

import yaml

MAX_NODES = 2**14
"""Two hundred and fifty-six keys with every field are half of it."""
MAX_DEPTH = 8
MAX_SCALAR = 512
"""Characters of one text or number."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENING = (yaml.SequenceStartEvent, yaml.MappingStartEvent)
_CLOSING = (yaml.SequenceEndEvent, yaml.MappingEndEvent)


def load_bounded_yaml(text: str) -> Any:
    """The one document in ``text``; raises ``ValueError`` with the reason where it is no YAML or is beyond a bound."""
    try:
        _check_bounds(text)
        return yaml.load(text, _LOADER)
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        raise ValueError(f"it is no YAML{'' if place is None else f', at line {place.line + 1}'}") from None


def _check_bounds(text: str) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, _LOADER)):
        line = f"at line {event.start_mark.line + 1 if event.start_mark else 1}"
        if number > MAX_NODES:
            raise ValueError(f"it has more than {MAX_NODES} nodes")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ValueError(f"{line} it has an anchor or an alias, which are not allowed")
        if isinstance(event, _OPENING):
            depth += 1
        elif isinstance(event, _CLOSING):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent):
            if event.value == "<<" and not event.style:
                raise ValueError(f"{line} it has a merge key, which is not allowed")
            if len(event.value) > MAX_SCALAR:
                raise ValueError(f"{line} a value is longer than {MAX_SCALAR} characters")
        if depth > MAX_DEPTH:
            raise ValueError(f"{line} it is nested deeper than {MAX_DEPTH} levels")
