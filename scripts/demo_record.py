"""What ``paternoster up --record`` wrote: the fleet second by second, and the operator's decisions."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sample:
    """One line of the record. ``time`` is in seconds since the epoch; shares are 0..1."""

    time: float
    model: str
    desired: int
    ready: int
    cap: int
    running: int
    waiting: int
    preemption_rate: float
    kv_usage: float
    tokens_per_second: float


@dataclass(frozen=True)
class Decision:
    """One change the operator decided on."""

    time: float
    loop: str
    action: str
    before: int
    after: int
    reason: str
    message: str
    applied: bool

    @property
    def change(self) -> str:
        return f"{self.before} → {self.after}"

    @property
    def lowers_cap_on_preemption(self) -> bool:
        lowers = self.loop == "LiveCap" and self.after < self.before
        return lowers and self.applied and self.reason == "PreemptionAboveTarget"

    def document(self, begin: float) -> dict[str, Any]:
        return {
            "seconds": round(self.time - begin, 1),
            "loop": self.loop,
            "from": self.before,
            "to": self.after,
            "reason": self.reason,
            "message": self.message,
        }


@dataclass
class Record:
    """The record of one LLMDeployment so far."""

    endpoint: str = ""
    samples: list[Sample] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    @property
    def begin(self) -> float:
        return self.samples[0].time if self.samples else 0.0

    @property
    def seconds(self) -> float:
        """From the first sample to the last."""
        return self.samples[-1].time - self.begin if self.samples else 0.0

    @property
    def ready(self) -> int:
        return self.samples[-1].ready if self.samples else 0

    @property
    def model(self) -> str:
        return self.samples[-1].model if self.samples else ""

    def path(self, name: str) -> list[int]:
        """A number of every sample, from the moment there was one to tell: before that it is 0."""
        return [value for sample in self.samples if (value := getattr(sample, name)) > 0]

    def feed(self, line: str) -> list[Decision]:
        """Take in one line of the file; returns the decisions it brought."""
        document = json.loads(line)
        self.endpoint = document["endpoint"]
        made: list[Decision] = []
        for fleet in document["deployments"]:
            numbers = {name: fleet[name] for name in Sample.__dataclass_fields__ if name != "time"}
            numbers = {name: 0 if value is None else value for name, value in numbers.items()}  # no engine reports yet
            self.samples.append(Sample(time=document["time"], **numbers))
            made += [
                Decision(
                    time=document["time"],
                    loop=decision["loop"],
                    action=decision["action"],
                    before=decision["from"],
                    after=decision["to"],
                    reason=decision["reason"],
                    message=decision["message"],
                    applied=decision["applied"],
                )
                for decision in fleet["decisions"]
            ]
        self.decisions += made
        return made
