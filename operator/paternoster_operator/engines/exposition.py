"""Samples of a Prometheus exposition that an engine wrote: those of the names that are read, bounded before parsing."""

import math
import re
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from paternoster_operator.engines.adapter import StatsUnavailable

LONGEST_METRICS = 4 * 2**20
"""Bytes of ``/metrics``: an engine with one model writes 60 KiB."""
MAX_SAMPLES = 4096
"""Samples of the names that are read: one a name, engine and reason."""


def read_samples(text: bytes, names: set[str]) -> Iterator[Sample]:
    """The samples of ``names``; all other lines, most of them buckets, are left out before the parser reads them.

    Raises :class:`StatsUnavailable`, also for a value that no counter or gauge has.
    """
    wanted = re.compile(rf"^(?:{'|'.join(map(re.escape, sorted(names)))})[ {{].*$", re.MULTILINE)
    lines = wanted.findall(text.decode(errors="replace"))
    if len(lines) > MAX_SAMPLES:
        raise StatsUnavailable(f"/metrics has {len(lines)} samples of the names that are read: at most {MAX_SAMPLES}")
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                if not math.isfinite(sample.value) or sample.value < 0:
                    raise StatsUnavailable(f"{sample.name} is {sample.value}: must be a number of at least 0")
                yield sample
    except StatsUnavailable:
        raise
    except ValueError as error:
        raise StatsUnavailable(f"/metrics cannot be parsed: {str(error)[:200]}") from None


def sum_samples(text: bytes, names: set[str]) -> dict[str, float]:
    """The sum of each of ``names`` over its labels; a name without a sample is missing."""
    totals: dict[str, float] = {}
    for sample in read_samples(text, names):
        totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals
