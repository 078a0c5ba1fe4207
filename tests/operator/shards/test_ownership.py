"""No fleet has two shards, however their processes are interleaved, killed and stopped; and in the end each has one."""

import itertools
import types
from collections.abc import Collection, Coroutine, Generator, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_operator.cluster.buckets import NUM_BUCKETS, Shard, assign_buckets, find_bucket
from paternoster_operator.cluster.lease import LEASE_SECONDS, RENEW_SECONDS, shard_lease
from paternoster_operator.cluster.port import Key
from paternoster_operator.shards.ownership import FleetOwnership

LEASE = Key("system", "operator")
KEYS: dict[int, Key] = {}
for _number in itertools.count():
    KEYS.setdefault(find_bucket(Key("n", f"f{_number}")), Key("n", f"f{_number}"))
    if len(KEYS) == NUM_BUCKETS:
        break


@types.coroutine
def switch() -> Generator[None, None, None]:
    """Let another process go on."""
    yield


class World:
    """The API server's objects, and the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.data: Mapping[str, str] | None = None
        self.version = 0
        self.leases: dict[Key, tuple[str, float]] = {}

    def get(self, key: Key) -> Mapping[str, Any] | None:
        return {}

    async def read_fleet(self, key: Key) -> Mapping[str, Any] | None:
        return None

    async def has_children(self, key: Key) -> bool:
        return True

    async def read_config_map(self, key: Key) -> tuple[Mapping[str, str], str] | None:
        assert key == Key("system", "operator-shards")
        await switch()
        return None if self.data is None else (self.data, str(self.version))

    async def write_config_map(self, key: Key, data: Mapping[str, str], version: str | None) -> str | None:
        if version != (None if self.data is None else str(self.version)):
            return None
        self.data, self.version = data, self.version + 1
        await switch()
        return str(self.version)

    async def read_lease(self, key: Key) -> tuple[str, str]:
        await switch()
        holder, renewed = self.leases.get(key, ("", 0.0))
        return holder, str(renewed or "")


class Process:
    """One operator of a shard."""

    def __init__(self, world: World, shard: Shard, name: str) -> None:
        self.world, self.name, self.lease = world, name, shard_lease(LEASE, shard.number)
        self.leading = False
        self.renewed_at = float("-inf")
        self.terms = 0
        self.gained: list[int] = []
        self.ownership = FleetOwnership(
            shard, world, LEASE, self.find_term, self.gain, self.let_go, lambda: world.now, lambda: world.now
        )
        self._steps: Coroutine[Any, Any, None] = self._run()

    def find_term(self) -> int | None:
        return self.terms if self.leading and self.world.now - self.renewed_at < RENEW_SECONDS else None

    def gain(self, buckets: Collection[int]) -> None:
        self.gained += buckets

    async def let_go(self, buckets: Collection[int]) -> None:
        owned = [bucket for bucket in buckets if self.ownership.owns(KEYS[bucket])]
        assert not owned, "the fleets would be seen by another while this one acts"
        await switch()

    def go_on(self) -> None:
        self._steps.send(None)

    def close(self) -> None:
        """Leave no coroutine that was not awaited."""
        self._steps.close()

    async def _run(self) -> None:
        while True:
            await self._elect()
            if self.leading:
                await self.ownership._follow_once()
            await switch()

    async def _elect(self) -> None:
        await switch()
        holder, renewed = self.world.leases.get(self.lease, ("", 0.0))
        if holder in ("", self.name) or self.world.now - renewed >= LEASE_SECONDS:
            if not self.leading:
                self.ownership.clear()
            self.world.leases[self.lease] = (self.name, self.world.now)
            self.terms += self.world.now - self.renewed_at >= RENEW_SECONDS
            self.leading, self.renewed_at = True, self.world.now
        elif self.leading:
            self.leading = False
            self.ownership.clear()


def check_owners(processes: Collection[Process], every: int = 1) -> dict[int, int]:
    """No bucket has two; returns the shard's number of each that has one. Only of one bucket in ``every``."""
    found: dict[int, int] = {}
    for process in processes:
        for bucket, key in itertools.islice(KEYS.items(), 0, None, every):
            if process.ownership.owns(key):
                assert bucket not in found, (bucket, found[bucket], process.ownership.shard)
                found[bucket] = process.ownership.shard.number
    return found


def settle(world: World, processes: Collection[Process]) -> dict[int, int]:
    """Let each go on until all buckets have the shard that they are to have, or for two minutes."""
    wanted = dict(enumerate(assign_buckets(len(processes))))
    for _ in range(240):
        world.now += 0.5
        for process in processes:
            for _ in range(12):
                process.go_on()
        if check_owners(processes) == wanted:
            break
    return check_owners(processes)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("go on"), st.integers(0, 7), st.integers(1, 12)),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 3.0, 11.0, 16.0]), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, 7), st.just(0)),
        st.tuples(st.just("delete the record"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([(1, 3), (3, 2), (2, 3), (3, 1), (3, 3)]), STEPS)
def test_no_fleet_has_two_shards_and_in_the_end_each_has_one(
    counts: tuple[int, int], steps: list[tuple[str, Any, int]]
) -> None:
    """Processes of two releases, with another number of shards each, and one more of each shard that stands by."""
    world, old, new = World(), *counts
    processes = [Process(world, Shard(n, old), f"old-{n}-{i}") for n in range(old) for i in range(2)]
    processes += [Process(world, Shard(n, new), f"new-{n}") for n in range(new)]
    alive = list(processes)
    lost = False
    """Whether a single shard may begin without the record: it has no way to find the others then."""
    for action, which, times in steps:
        if action == "wait":
            world.now += which
        elif action == "delete the record":
            world.data, lost = None, 1 in counts
        elif action == "go on" and alive:
            for _ in range(times):
                alive[which % len(alive)].go_on()
                if not lost:
                    check_owners(processes, 7)
        elif action == "kill" and alive:
            alive.pop(which % len(alive))
        if not lost:
            check_owners(processes)
    world.now += LEASE_SECONDS
    last = [Process(world, Shard(n, new), f"last-{n}") for n in range(new)]
    assert settle(world, last) == dict(enumerate(assign_buckets(new)))
    for process in (*processes, *last):
        process.close()


def test_a_cluster_that_never_had_shards_gets_no_record() -> None:
    world = World()
    process = Process(world, Shard(), "one")
    for _ in range(20):
        if not process.ownership._has_all:
            process.go_on()
    assert world.data is None
    assert all(process.ownership.owns(key) and process.ownership.find_token(key) is None for key in KEYS.values())
    assert sorted(process.gained) == list(range(NUM_BUCKETS))


def test_a_killed_shard_is_taken_over_with_a_greater_token() -> None:
    world = World()
    shards = [Process(world, Shard(number, 3), f"shard-{number}") for number in range(3)]
    settle(world, shards)
    tokens = {bucket: shards[1].ownership.find_token(KEYS[bucket]) for bucket in Shard(1, 3).buckets}
    shards[1] = Process(world, Shard(1, 3), "standby")
    killed_at = world.now
    while not all(shards[1].ownership.owns(KEYS[bucket]) for bucket in tokens):
        world.now += 0.5
        for process in shards:
            for _ in range(8):
                process.go_on()
        assert world.now - killed_at < 20
    for bucket, token in tokens.items():
        assert (shards[1].ownership.find_token(KEYS[bucket]) or 0) > (token or 0) > 0


def test_a_stopped_shard_that_finds_its_lease_as_it_was_has_lost_its_buckets_to_another() -> None:
    """Another number of shards takes the buckets, and no process takes the Lease."""
    world = World()
    shards = [Process(world, Shard(number, 3), f"shard-{number}") for number in range(3)]
    settle(world, shards)
    new = [Process(world, Shard(number, 2), f"shard-{number}") for number in range(2)]
    assert settle(world, new) == dict(enumerate(assign_buckets(2)))
    for _ in range(12):
        shards[2].go_on()
        check_owners([*new, shards[2]])
