"""What became of each request, in columns: millions of them fit into memory."""

from array import array
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class RequestOutcome(IntEnum):
    FINISHED = 0
    REFUSED = 1
    """No replica took it: queues were full, or it can never fit."""
    HELD_TOO_LONG = 2
    """No replica became ready in time, or as many requests as may were held already."""
    BROKEN = 3
    """Every attempt failed, and no replica could go on with it."""
    UNFINISHED = 4
    """Still without an end when the simulation ended."""


class Records:
    """One row a request, in order of its end. Times in seconds; latencies are NaN where there is none."""

    def __init__(self) -> None:
        self._outcome = array("b")
        self._arrival = array("d")
        self._ttft = array("f")
        self._end_to_end = array("f")
        self._prompt = array("I")
        self._output = array("I")
        self._preemptions = array("H")

    def __len__(self) -> int:
        return len(self._outcome)

    def add(
        self,
        outcome: RequestOutcome,
        arrival: float,
        prompt: int,
        output: int,
        *,
        ttft: float = float("nan"),
        end_to_end: float = float("nan"),
        preemptions: int = 0,
    ) -> None:
        self._outcome.append(outcome)
        self._arrival.append(arrival)
        self._ttft.append(ttft)
        self._end_to_end.append(end_to_end)
        self._prompt.append(prompt)
        self._output.append(output)
        self._preemptions.append(min(preemptions, 65_535))

    @property
    def outcome(self) -> NDArray[np.int8]:
        return np.array(self._outcome, dtype=np.int8)

    @property
    def arrival(self) -> NDArray[np.float64]:
        return np.array(self._arrival, dtype=np.float64)

    @property
    def ttft(self) -> NDArray[np.float32]:
        """Seconds from arrival at the gateway to the first token."""
        return np.array(self._ttft, dtype=np.float32)

    @property
    def end_to_end(self) -> NDArray[np.float32]:
        return np.array(self._end_to_end, dtype=np.float32)

    @property
    def prompt(self) -> NDArray[np.uint32]:
        return np.array(self._prompt, dtype=np.uint32)

    @property
    def output(self) -> NDArray[np.uint32]:
        return np.array(self._output, dtype=np.uint32)

    @property
    def preemptions(self) -> NDArray[np.uint16]:
        return np.array(self._preemptions, dtype=np.uint16)

    @property
    def itl(self) -> NDArray[np.float32]:
        """Mean seconds between tokens; 0 where there is only one."""
        gaps = np.maximum(self.output.astype(np.float32) - 1, 1)
        return np.asarray((self.end_to_end - self.ttft) / gaps, dtype=np.float32)
