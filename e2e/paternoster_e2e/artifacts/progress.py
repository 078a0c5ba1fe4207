"""How far a long stage is, on a terminal or in a log."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Never

from tqdm import tqdm


@contextmanager
def progress(what: str, total: int, unit: str, line: int = 0) -> Iterator["tqdm[Never]"]:
    """A bar with what is done, the time since, and an estimate of the rest; ``line`` keeps two of them apart.

    Nothing is shown of what takes less than a second.

    The estimate is from the average so far: parts differ too much for the last ones to say anything.
    """
    # A log needs no bar that moves ten times a second, nor one that goes up a line.
    pace, place = (0.1, line) if sys.stderr.isatty() else (15.0, 0)
    with tqdm(total=total, unit=unit, desc=what, mininterval=pace, smoothing=0, position=place, delay=1) as bar:
        yield bar
