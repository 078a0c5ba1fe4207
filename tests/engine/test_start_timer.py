"""Where the time of a start went."""

import subprocess
import sys
import time

from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.stats import StartPart
from paternoster_engine.start_timer import StartTimer, process_age


@given(st.integers(0, 50), st.lists(st.tuples(st.integers(0, 50), st.sampled_from(StartPart)), min_size=1))
def test_each_second_is_of_one_part(age: int, laps: list[tuple[int, StartPart]]) -> None:
    now = 1000
    timer = StartTimer(age, lambda: now)
    for seconds, part in laps:
        now += seconds
        timer.record_end(part)
    assert sum(timer.seconds.values()) == age + sum(seconds for seconds, _ in laps)
    assert timer.seconds.keys() == set(StartPart)


def test_as_it_is_told() -> None:
    now = 0.0
    timer = StartTimer(1.5, lambda: now)
    timer.record_end(StartPart.IMPORTS)
    now = 2.0
    timer.record_end(StartPart.LOAD)
    assert str(timer) == "3.5 s: imports 1.5 s, download 0.0 s, load 2.0 s, warm-up 0.0 s"


def test_the_age_of_a_process() -> None:
    began = time.monotonic()
    script = "from paternoster_engine.start_timer import process_age; print(process_age())"
    age = float(subprocess.check_output([sys.executable, "-P", "-c", script], text=True))
    # The kernel counts in hundredths.
    assert 0 < age <= time.monotonic() - began + 0.02
    assert process_age() > age
