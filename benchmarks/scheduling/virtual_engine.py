"""The engine of this project in virtual time: its own scheduler and step loop, and a runner that only takes time."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paternoster_engine.bench.batching import ModeName, make_scheduler
from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.runner.protocol import SynchronousRunner
from paternoster_simulator.cost import StepCost, to_seconds
from paternoster_simulator.profile import Profile
from paternoster_simulator.settings import FleetSettings


class VirtualClock:
    """Seconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, duration: float) -> None:
        self.now += duration


@dataclass(frozen=True, slots=True)
class Machine:
    """What a step and a copied block cost, and the engine's settings by default."""

    config: SchedulerConfig
    cost: StepCost
    block_copy_seconds: float
    """One block between the KV pool and host memory, in one direction."""
    make_scheduler: Callable[[SchedulerConfig], Scheduler] = Scheduler

    @classmethod
    def of(cls, profile: Profile, block_copy_seconds: float) -> "Machine":
        """The profile's replica with the prefix cache off, which the experiment about it turns on."""
        settings = FleetSettings(max_queued_requests=1_000_000)
        return cls(settings.scheduler_config(profile), profile.cost, block_copy_seconds)

    def changed(self, **changes: object) -> "Machine":
        """Copy the machine with other settings of the scheduler."""
        return dataclasses.replace(self, config=self.config.replace(**changes))

    def with_batching(self, mode: ModeName, wait: float = 0.0) -> "Machine":
        """Copy the machine with requests admitted by ``mode``; ``wait``: seconds, of a dynamic batch."""
        return dataclasses.replace(self, make_scheduler=lambda config: make_scheduler(mode, config, wait=wait))


class CostedRunner(SynchronousRunner):
    """Lets the clock run for as long as a step takes, and samples the tokens that a script has."""

    def __init__(self, machine: Machine, clock: VirtualClock, script: Mapping[str, Sequence[int]]) -> None:
        """``script``: output tokens by request id; who is not in it says token 0."""
        self._machine = machine
        self._clock = clock
        self._script = script
        self.sampling_steps = 0
        """Steps that sampled at least one token."""
        self.late_prefills = 0
        """Prefill chunks of requests whose deadline had passed when their step began."""

    def execute(self, batch: Batch) -> StepResult:
        begun = self._clock.now
        self._clock.advance((len(batch.swap_out) + len(batch.swap_in)) * self._machine.block_copy_seconds)
        sampled: list[int | None] = []
        for request, start, count, samples, _ in batch.scheduled:
            deadline = request.spec.deadline
            if deadline is not None and deadline <= begun and (count > 1 or start < request.num_prompt):
                self.late_prefills += 1
            script = self._script.get(request.request_id, ())
            position = len(request.output)
            sampled.append((script[position] if position < len(script) else 0) if samples else None)
        if batch.scheduled:
            self._clock.advance(to_seconds(self._machine.cost.step(batch)))
        self.sampling_steps += any(token is not None for token in sampled)
        return StepResult(sampled)


class VirtualEngine:
    """One engine, its clock and its runner."""

    def __init__(self, machine: Machine, script: Mapping[str, Sequence[int]]) -> None:
        self.clock = VirtualClock()
        self.scheduler = machine.make_scheduler(machine.config)
        self.runner = CostedRunner(machine, self.clock, script)
        self.engine = Engine(self.scheduler, self.runner, self.clock)
