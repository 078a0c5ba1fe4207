"""Tenants in the scheduler: weight, quota and cached prefixes are those of a request's key; names are bounded."""

import pytest

from paternoster_contract.queueing.service_counters import MAX_COUNTERS
from paternoster_engine.core.admission.tenant_quota import MAX_BUCKETS, TenantQuota
from paternoster_engine.core.batch import StepResult
from paternoster_engine.core.config import SchedulerConfig, TenantLimits
from paternoster_engine.core.errors import TenantQueueFull, TenantRateExceeded
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.core.waiting.fair_share import FairShareQueue
from paternoster_engine.server.access.identity import cache_scope

CONFIG = SchedulerConfig(max_num_seqs=1, max_batched_tokens=64, max_model_len=64, block_size=4, num_blocks=60)


def request(name: str, tenant: str = "", arrival: float = 0.0, **fields: object) -> Request:
    prompt = list(range(1, 17))
    return Request(RequestSpec(name, prompt, SamplingParams(max_tokens=2), arrival=arrival, tenant=tenant, **fields))  # type: ignore[arg-type]


def test_quotas_come_with_the_request_where_the_engine_has_none() -> None:
    scheduler = Scheduler(CONFIG)
    one, slow = TenantLimits(max_queued=1), TenantLimits(tokens_per_second=2, token_burst=4)
    scheduler.add(request("a", "acme", limits=one))
    with pytest.raises(TenantQueueFull, match="'acme'"):
        scheduler.add(request("b", "acme", limits=one))
    scheduler.add(request("c", "slow", limits=slow))
    with pytest.raises(TenantRateExceeded, match="2 tokens per second"):
        scheduler.add(request("d", "slow", 1.0, limits=slow))
    scheduler.add(request("e", "other"))


def test_a_weight_comes_with_the_request() -> None:
    share = FairShareQueue({"named": 4.0})
    for tenant, limits in (("heavy", TenantLimits(weight=8)), ("named", None), ("plain", None)):
        share.count_computed(request(tenant, tenant, limits=limits), 16)
    assert share.counters.by_tenant == {"heavy": 2.0, "named": 4.0, "plain": 16.0}


def test_names_do_not_fill_the_memory_though_each_is_overdrawn() -> None:
    quota, limits = TenantQuota(CONFIG), TenantLimits(tokens_per_second=0.001, token_burst=1)
    for i in range(3 * MAX_BUCKETS):
        each = request(str(i), f"name-{i}", limits=limits)
        quota.check_request(each, 0)
        quota.reserve_tokens(each, goes_on=False)
        each.max_computed = each.num_prompt
        quota.charge_output(each, 1 + (i == 0), 0.0)
        quota.settle_request(each)
        assert len(quota._buckets) <= MAX_BUCKETS
    with pytest.raises(TenantRateExceeded):
        quota.check_request(request("again", "name-0", 1.0, limits=limits), 0)


def test_names_do_not_fill_the_memory_of_fair_shares() -> None:
    share = FairShareQueue({})
    share.insert(request("waits", "waits"))
    for i in range(3 * MAX_COUNTERS):
        each = request(str(i), f"name-{i}")
        share.insert(each)
        share.remove(each)
        share.count_computed(each, each.num_prompt)
        assert len(share.counters.by_tenant) <= MAX_COUNTERS + 2
    assert "waits" in share.counters.by_tenant


def cached(scheduler: Scheduler, each: Request) -> int:
    scheduler.add(each)
    while not each.finished:
        batch = scheduler.schedule(1.0)
        assert batch is not None
        scheduler.update(batch, StepResult([7 if item.samples else None for item in batch.scheduled]), 1.0)
    return each.num_cached


def test_a_prefix_is_found_in_its_own_scope_alone() -> None:
    scheduler = Scheduler(CONFIG)
    scopes = [cache_scope(), cache_scope("a", ""), cache_scope("b", ""), cache_scope("a", "salt"), cache_scope("", "a")]
    assert [cached(scheduler, request(f"first-{i}", cache_scope=s)) for i, s in enumerate(scopes)] == [0] * 5
    assert [cached(scheduler, request(f"again-{i}", cache_scope=s)) for i, s in enumerate(scopes)] == [12] * 5


def test_scopes_of_names_that_read_alike_differ() -> None:
    names = [("ab", "c"), ("a", "bc"), ('a", "b', "c"), ("a", 'b", "c')]
    assert len({cache_scope(*each) for each in names}) == len(names)
    assert cache_scope("", "") == b""
