"""One run in virtual time: fleets, gateways, calls and faults, all of them drawn from one seed."""

from collections import Counter
from math import ceil, log
from random import Random

from paternoster_contract.routing import ModelRoute, Replica, RoutingTable
from paternoster_gateway.call.suspicion import (
    MAX_CHANCE,
    MAX_STOPS,
    MIN_SPAN_SECONDS,
    MIN_STOPS_IN_COMPANY,
    SUSPECT_SECONDS,
    WINDOW_SECONDS,
)
from streams.virtual.events import Clock
from streams.virtual.gateway import HANG_SECONDS, SessionGateway
from streams.virtual.replicas import VirtualCall, VirtualReplica
from streams.virtual.running_call import RunningCall, Violation

NUM_MODELS = 3
NUM_REPLICAS = 5
"""Replicas of each model."""
CALLS_PER_SECOND = 20.0
FAULT_SECONDS = (10.0, 40.0, 200.0)
"""Mean time between two faults of a run, one of these."""
MAX_CALL_SECONDS = 900.0
"""A call that has not ended by then is held for ever."""
POISON_SECONDS = 160.0
"""Between two poison calls of one fleet: no stop of the one before is a measure of chance then."""


class World:
    """Gateways and replicas under ``num_calls`` calls."""

    def __init__(self, seed: int, num_calls: int) -> None:
        self.random = Random(seed)
        self.clock = Clock(self.random)
        self.outcomes = Counter[str]()
        self.chance_blames = 0
        """Honest calls that were blamed for ends of replicas that nothing but chance explains."""
        self._fault_seconds = self.random.choice(FAULT_SECONDS)
        self._left_calls = num_calls
        self._serial = 0
        self._poison_after = {f"m{number}": self.random.uniform(0, POISON_SECONDS) for number in range(NUM_MODELS)}
        self.replicas = {
            url: VirtualReplica(url, model, self.clock, self.random, self._publish)
            for model in self._poison_after
            for url in (f"{model}-{number}" for number in range(NUM_REPLICAS))
        }
        self.gateways = [
            SessionGateway(self.clock, self.replicas, self._on_end) for _ in range(self.random.choice((1, 2)))
        ]
        self._publish()
        self.clock.after(0.0, self._arrive)
        self.clock.after(self.random.expovariate(1 / self._fault_seconds), self._break_something)

    def run(self) -> None:
        """Until every call has ended; raises :class:`Violation`."""
        while self._left_calls or any(gateway.live for gateway in self.gateways):
            if not self.clock.run_next():
                live = [run.call.number for gateway in self.gateways for run in gateway.live.values()]
                raise Violation(f"held: nothing will ever happen to the calls {live[:5]}")

    def _arrive(self) -> None:
        if not self._left_calls:
            return
        self._left_calls -= 1
        self._serial += 1
        random = self.random
        call = VirtualCall(
            self._serial, random.choice(list(self._poison_after)), random.random() < 0.7, random.randint(1, 12),
            arrival=self.clock.now,
        )  # fmt: skip
        if self.clock.now >= self._poison_after[call.model]:
            self._poison_after[call.model] = self.clock.now + POISON_SECONDS
            call.poison_at = random.randint(0, call.num_frames - 1)
        elif random.random() < 0.002:
            call.fails_at = random.randint(0, call.num_frames - 1)
        call.gateway = random.randrange(len(self.gateways))
        gateway = self.gateways[call.gateway]
        gateway.begin_call(call)
        if random.random() < 0.03:
            self.clock.after(random.expovariate(1.0), self._leave, gateway, call)
        self.clock.after(MAX_CALL_SECONDS, self._check_ended, gateway, call)
        self.clock.after(random.expovariate(CALLS_PER_SECOND), self._arrive)

    def _leave(self, gateway: SessionGateway, call: VirtualCall) -> None:
        for run in list(gateway.live.values()):
            if run.call is call:
                gateway.leave(run)

    def _check_ended(self, gateway: SessionGateway, call: VirtualCall) -> None:
        if any(run.call is call for run in gateway.live.values()):
            raise Violation(f"held: call {call.number} has no end after {MAX_CALL_SECONDS:g} s")

    def _break_something(self) -> None:
        replica = self.random.choice(list(self.replicas.values()))
        fault = self.random.random()
        if fault < 0.35:
            replica.die(None)
        elif fault < 0.5:
            replica.hang()
            for gateway in self.gateways:
                self.clock.after(HANG_SECONDS + self.random.random(), gateway.on_hang, replica)
        elif fault < 0.8:
            replica.drain()
        else:
            replica.cut_connections()
        if self._left_calls:
            self.clock.after(self.random.expovariate(1 / self._fault_seconds), self._break_something)

    def _publish(self) -> None:
        """Each gateway gets the table late, now and then twice; of two tables the later one may come first."""
        for gateway in getattr(self, "gateways", ()):
            for _ in range(2 if self.random.random() < 0.1 else 1):
                delay = 0.0 if not self.clock.now else 0.02 + self.random.random() * 0.5
                self.clock.after(delay, self._deliver_table, gateway)

    def _deliver_table(self, gateway: SessionGateway) -> None:
        models: dict[str, list[Replica]] = {model: [] for model in self._poison_after}
        for replica in self.replicas.values():
            is_ready = replica.state != "dead" and not replica.drains
            models[replica.model].append(
                Replica(name=replica.url, url=replica.url, ready=is_ready, draining=replica.drains)
            )
            if replica.state == "up":
                gateway.on_recovery(replica.url)
        rows = {
            model: ModelRoute(fleet=model, replicas=replicas, hand_over=True, hold_timeout_seconds=60)
            for model, replicas in models.items()
        }
        gateway.change_table(RoutingTable(models=rows))

    def _count_needed_stops(self, call: VirtualCall) -> int:
        """Ends of replicas behind which a poison call is blamed, as many of them as chance may explain included."""
        others = sum(
            cause is not call and at > call.arrival - WINDOW_SECONDS
            for replica in self.replicas.values()
            if replica.model == call.model
            for at, cause in replica.stops
        )
        chance = others * SUSPECT_SECONDS / (MIN_SPAN_SECONDS * NUM_REPLICAS)
        if chance >= 1.0:
            return MAX_STOPS
        explained = ceil(log(MAX_CHANCE) / log(chance)) if chance else 0
        return min(max(explained, MIN_STOPS_IN_COMPANY), MAX_STOPS)

    def _on_end(self, run: RunningCall, how: str) -> None:
        call = run.call
        self.outcomes[how] += 1
        if len(call.kills) > self._count_needed_stops(call):
            raise Violation(f"poison: call {call.number} ended {len(call.kills)} replicas that had no frame of it")
        if how == "request_quarantined" and call.poison_at is None and call.fails_at is None:
            causes = [cause for cause in call.at_foreign_stops if cause is not None and cause.gateway == call.gateway]
            if causes and len(causes) == len(call.at_foreign_stops):
                raise Violation(f"bystander: call {call.number} is blamed for what call {causes[0].number} did")
            self.chance_blames += 1
