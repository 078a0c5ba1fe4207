"""Answers of engines, bounded before they are parsed: expositions of Prometheus, and documents in JSON.

An engine's text is read in a time that is linear in its length, on the event loop: a filter takes the samples out of an
exposition while it comes in, at most 64 KiB at a time, and what it keeps has a bound of its own.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from paternoster_http.json_bounds import JsonTooLarge, count_values
from paternoster_operator.engines.adapter import StatsUnavailable

LONGEST_METRICS = 4 * 2**20
"""Bytes of ``/metrics``: an engine with one model writes 60 KiB. Only samples that are read are kept."""
MAX_SAMPLES = 4096
"""Samples of the names that are read: one a name, engine and reason."""
LONGEST_SAMPLE = 8 * 2**10
"""Bytes of one: the longest that is read, of the settings of vLLM's KV cache, has 1,090."""
LONGEST_SAMPLES = 256 * 2**10
"""Bytes of all of them."""
LARGEST_VALUE = 2**53
"""Largest value of a sample, as of a counter of ``/stats``. No sum of :data:`MAX_SAMPLES` overflows a float."""
MAX_VALUES = 1024
"""Values and names of a document in JSON: ``/stats`` of our engine has 120."""

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"[ \t]*+'
_LABELS = rf"(?:[ \t]*+{_LABEL.replace('([', '(?:[')}(?:,|(?=\}})))*+[ \t]*+"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABELS})\}})?[ \t]++([^\s_]{{1,64}}+)(?:[ \t]++-?[0-9]++)?\s*+")
"""Name, labels, value and time. No repetition gives back what it took: a match takes a time linear in the line."""
_LABEL_PATTERN = re.compile(_LABEL)
_BACKSLASH = "\ud800"
"""Stands for an escaped one while others are replaced: no decoded text has it."""


class Sample(NamedTuple):
    """A sample of an exposition."""

    name: str
    labels: Mapping[str, str]
    value: float


@lru_cache(maxsize=64)
def _compile_lines(names: frozenset[str]) -> re.Pattern[bytes]:
    """Matches the end of a line and a sample of one of ``names`` after it."""
    return re.compile(rb"\n(?:%s)[ {][^\n]*+" % b"|".join(re.escape(name.encode()) for name in sorted(names)))


class SampleFilter:
    """Keeps the samples of some names of an exposition that comes in pieces; other lines cost no more than a search."""

    def __init__(self, names: Collection[str]) -> None:
        self._pattern = _compile_lines(frozenset(names))
        self._rest = b"\n"
        """The last line so far, with the end of the line before it."""
        self._samples: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> None:
        """Raise :class:`StatsUnavailable` above a bound."""
        data = self._rest + piece
        end = max(data.rfind(b"\n"), 0)
        self._keep_samples(data[:end])
        self._rest = data[end:]
        if len(self._rest) > LONGEST_SAMPLE:
            self._keep_samples(self._rest)  # raises where the line is kept
            self._rest = b"\n#"  # the rest of the line is a comment's

    def finish(self) -> bytes:
        """What was kept, a line each."""
        self._keep_samples(self._rest)
        return b"".join(self._samples)

    def _keep_samples(self, data: bytes) -> None:
        for line in self._pattern.findall(data):
            self._size += len(line)
            if len(line) > LONGEST_SAMPLE:
                name = re.split(rb"[ {]", line[1:], maxsplit=1)[0].decode()
                raise StatsUnavailable(f"{name} has a sample of more than {LONGEST_SAMPLE} bytes in /metrics")
            self._samples.append(line)
        if len(self._samples) > MAX_SAMPLES or self._size > LONGEST_SAMPLES:
            raise StatsUnavailable(
                f"/metrics has {len(self._samples)} samples, {self._size} bytes, of the names that are read: at most "
                f"{MAX_SAMPLES} samples, {LONGEST_SAMPLES} bytes"
            )


def read_samples(text: bytes, names: Collection[str]) -> Iterator[Sample]:
    """The samples of ``names`` in an exposition, or in what a :class:`SampleFilter` kept of one.

    Raises :class:`StatsUnavailable`, also for a value that no counter or gauge has.
    """
    sample_filter = SampleFilter(names)
    sample_filter.feed(text)
    for line in sample_filter.finish().decode(errors="replace").split("\n")[1:]:
        found = _SAMPLE.fullmatch(line)
        if found is None:
            raise StatsUnavailable(f"/metrics cannot be parsed: {line[:200]!r}")
        name, labels, text_of_value = found.groups("")
        try:
            value = float(text_of_value)
        except ValueError:
            raise StatsUnavailable(f"/metrics cannot be parsed: {name} is {text_of_value!r}") from None
        if not 0 <= value <= LARGEST_VALUE:
            raise StatsUnavailable(f"{name} is {value:g}: must be a number from 0 to 2^53")
        yield Sample(name, _read_labels(labels), value)


def _read_labels(text: str) -> Mapping[str, str]:
    labels = dict(_LABEL_PATTERN.findall(text))
    if "\\" in text:
        return {name: _unescape_value(value) for name, value in labels.items()}
    return labels


def _unescape_value(value: str) -> str:
    value = value.replace("\\\\", _BACKSLASH).replace('\\"', '"').replace("\\n", "\n")
    return value.replace(_BACKSLASH, "\\")


def sum_samples(text: bytes, names: Collection[str]) -> dict[str, float]:
    """The sum of each of ``names`` over its labels; a name without a sample is missing."""
    totals: dict[str, float] = {}
    for sample in read_samples(text, names):
        totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals


def check_values(answer: bytes, what: str, most: int = MAX_VALUES) -> None:
    """Raise :class:`StatsUnavailable` where ``answer``, JSON, has more than ``most`` values and names, or is deep."""
    try:
        count = count_values(answer, what)
    except JsonTooLarge as error:
        raise StatsUnavailable(str(error)) from None
    if count > most:
        raise StatsUnavailable(f"{what} has {count} values and names: at most {most}")


def read_object(answer: bytes, what: str, most: int = MAX_VALUES) -> dict[str, Any]:
    """The object that ``answer`` is in JSON, of at most ``most`` values and names; ``what`` is its name in a fault."""
    check_values(answer, what, most)
    try:
        document = json.loads(answer)
    except ValueError:
        raise StatsUnavailable(f"{what} is not JSON") from None
    if not isinstance(document, dict):
        raise StatsUnavailable(f"{what} is no object")
    return document
