"""Tenants take turns at the thread that compiles grammars."""

import asyncio
import threading
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.sampling.grammars import compiler
from paternoster_engine.sampling.grammars.errors import GrammarError, GrammarProcessLost, GrammarQueueFull
from paternoster_engine.sampling.grammars.source import GrammarSource
from paternoster_engine.sampling.grammars.vocabulary import Vocabulary
from paternoster_engine.server.generation.grammar_work import MAX_OF_TENANT, MAX_WAITING, GrammarWork, Made
from paternoster_engine.server.generation.round_robin import TenantQueues
from paternoster_engine.server.metrics.histograms import Histograms


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_each_tenant_gets_its_share(tenants: Sequence[str]) -> None:
    turns: TenantQueues[tuple[str, int]] = TenantQueues()
    for number, tenant in enumerate(tenants):
        turns.add(tenant, (tenant, number))
    popped = list(iter(turns.pop_next, None))
    assert sorted(popped) == sorted((tenant, number) for number, tenant in enumerate(tenants))
    for tenant in "abc":
        own = [number for name, number in popped if name == tenant]
        assert own == sorted(own), "each one's own in its order"
        places = [place for place, (name, _) in enumerate(popped) if name == tenant]
        # Between two of one tenant's each other tenant has one at most.
        assert all(later - earlier <= len(set(tenants)) for earlier, later in pairwise(places))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30))
def test_work_that_is_removed_is_as_if_never_added(work: Sequence[tuple[str, bool]]) -> None:
    turns: TenantQueues[int] = TenantQueues()
    for number, (tenant, _) in enumerate(work):
        turns.add(tenant, number)
        turns.remove("d", number)
    for number, (tenant, stays) in enumerate(work):
        if not stays:
            turns.remove(tenant, number)
            turns.remove(tenant, number)
    counts = {tenant: turns.count_waiting(tenant) for tenant in "abc"}
    assert counts == {tenant: work.count((tenant, True)) for tenant in "abc"}
    assert sorted(iter(turns.pop_next, None)) == [number for number, (_, stays) in enumerate(work) if stays]


class Gated(GrammarWork):
    """Its work waits until it is let go on, and what was worked on is known."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, Histograms("x"))
        self.order: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def _compile(self, source: GrammarSource) -> tuple[Made, float]:
        self.order.append(source.text)
        assert self.gate.wait(30)
        return GrammarError(source.text), 0.0


async def test_one_tenants_grammars_do_not_hold_up_anothers(tokenizer: Tokenizer) -> None:
    work = Gated(tokenizer)
    work.gate.clear()
    slow = [asyncio.create_task(work.compile(GrammarSource("regex", f"slow {i}"), "one")) for i in range(20)]
    other = [asyncio.create_task(work.compile(GrammarSource("regex", text), "two")) for text in ("slow 15", "mine")]
    while not work.order:
        await asyncio.sleep(0)
    work.gate.set()
    await asyncio.gather(*slow, *other, return_exceptions=True)
    assert work.order[:5] == ["slow 0", "slow 15", "slow 1", "mine", "slow 2"]
    assert sorted(work.order) == sorted({*(f"slow {i}" for i in range(20)), "mine"}), "each once"
    work.close()


async def test_one_tenant_cannot_take_every_place(tokenizer: Tokenizer) -> None:
    work = Gated(tokenizer)

    async def submit(tenant: str, count: int) -> list[BaseException | object]:
        sources = [GrammarSource("regex", f"{tenant} {i}") for i in range(count)]
        return await asyncio.gather(*(work.compile(source, tenant) for source in sources), return_exceptions=True)

    results = await asyncio.gather(submit("one", MAX_WAITING), submit("two", 5), submit("three", MAX_WAITING))
    refused = [sum(isinstance(one, GrammarQueueFull) for one in of_tenant) for of_tenant in results]
    assert refused == [MAX_WAITING - MAX_OF_TENANT, 0, MAX_OF_TENANT + 5]
    work.close()


async def test_who_leaves_makes_place_at_once(tokenizer: Tokenizer) -> None:
    """Also where the thread is busy, and where another tenant waits for the same grammar."""
    work = Gated(tokenizer)
    work.gate.clear()
    begun = asyncio.create_task(work.compile(GrammarSource("regex", "begun"), "one"))
    while not work.order:
        await asyncio.sleep(0)
    sources = [GrammarSource("regex", str(i)) for i in range(MAX_OF_TENANT)]
    for _ in range(3):
        tasks = [asyncio.create_task(work.compile(source, "one")) for source in sources]
        await asyncio.sleep(0)
        assert work.waiting == MAX_OF_TENANT + 1
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(one) for one in results} == {asyncio.CancelledError}
        assert work.waiting == 1
    both = [asyncio.create_task(work.compile(sources[0], tenant)) for tenant in ("one", "two")]
    begun.cancel()
    await asyncio.sleep(0)
    both[0].cancel()
    await asyncio.sleep(0)
    assert work.waiting == 2, "what is under way is not asked for anew"
    again = asyncio.create_task(work.compile(GrammarSource("regex", "begun"), "three"))
    await asyncio.sleep(0)
    work.gate.set()
    await asyncio.gather(*both, again, return_exceptions=True)
    assert work.order == ["begun", "0"]
    work.close()


async def test_what_nobody_waits_for_is_left(tokenizer: Tokenizer) -> None:
    work = Gated(tokenizer)
    sources = [GrammarSource("regex", str(i)) for i in range(3)]
    work.gate.clear()
    tasks = [asyncio.create_task(work.compile(source)) for source in sources]
    while not work.order:
        await asyncio.sleep(0)
    tasks[1].cancel()
    work.gate.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert work.order == ["0", "2"]
    with pytest.raises(GrammarError, match="1"):
        await work.compile(sources[1])
    work.close()


async def test_a_ready_engine_starts_nothing_for_its_first_grammar(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the vocabulary holds the interpreter's lock, so that the event loop would stand still meanwhile."""
    started, read = [], []
    start, from_tokenizer = compiler.LimitedProcess, Vocabulary.from_tokenizer
    build = Vocabulary.build_tokenizer
    monkeypatch.setattr(compiler, "LimitedProcess", lambda *args: (started.append(args), start(*args))[1])
    monkeypatch.setattr(Vocabulary, "from_tokenizer", lambda made: (read.append(made), from_tokenizer(made))[1])
    monkeypatch.setattr(Vocabulary, "build_tokenizer", lambda *args: (read.append(args[0]), build(*args))[1])
    work = GrammarWork(tokenizer, Histograms("x"))
    await asyncio.to_thread(work.warm_up)
    assert (len(started), len(read)) == (1, 2)
    await work.compile(GrammarSource("regex", "[ab]+"))
    assert (len(started), len(read)) == (1, 2)
    work.close()


async def test_a_process_that_is_lost_at_the_start_keeps_no_engine_from_serving(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(_: object) -> None:
        raise GrammarProcessLost

    work = GrammarWork(tokenizer, Histograms("x"))
    with monkeypatch.context() as lost:
        lost.setattr(compiler.GrammarCompiler, "start", lose)
        await asyncio.to_thread(work.warm_up)
    assert await work.compile(GrammarSource("regex", "[ab]+"))
    work.close()
