"""What a scheduler reports of itself: every number of the contract but the process's own, in seconds."""

from paternoster_contract.stats import EngineStats
from paternoster_engine.core.batch import StepResult
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler

PROCESS = {
    "engine_version", "instance", "model", "state", "started_at", "time", "last_tick_age_seconds",
    "first_token_seconds_total", "first_token_count_total", "inter_token_seconds_total", "inter_token_count_total",
    "start_seconds", "default_parameters", "idle_seconds", "adapters", "unreported",
}  # fmt: skip
CONFIG = SchedulerConfig(num_blocks=8, block_size=16, max_num_seqs=2, max_batched_tokens=32, max_model_len=64)


def test_one_request_on_its_way() -> None:
    scheduler = Scheduler(CONFIG)
    scheduler.live_cap = 1
    for name in ("first", "second"):
        scheduler.add(Request(RequestSpec(name, list(range(20)), SamplingParams(max_tokens=4), arrival=0.0)))
    batch = scheduler.schedule(3000.0)
    stats = scheduler.build_stats(ticks_per_second=1000)
    assert stats.keys() == EngineStats.model_fields.keys() - PROCESS
    assert (stats["running"], stats["waiting"], stats["live_cap"], stats["capacity"]) == (1, 1, 1, 2)
    assert (stats["kv_blocks"], stats["kv_blocks_used"], stats["kv_block_size"]) == (8, 2, 16)
    assert (stats["queue_seconds_total"], stats["queue_count_total"]) == (3.0, 1)
    scheduler.update(batch, StepResult([0]), 4000.0)
    after = scheduler.build_stats()
    assert (after["generation_tokens_total"], after["computed_tokens_total"]) == (1, 20)
    assert (after["requests_total"], after["requests_finished_total"]) == (2, 0)
