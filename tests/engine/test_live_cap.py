"""The live cap of a real engine under load: lowering it drains, raising it acts at the next step."""

from paternoster_contract.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.core.request import Request
from paternoster_engine.core.sampling_params import SamplingParams


def test_from_32_to_4_and_back_without_a_preemption() -> None:
    engine, _, _ = build_engine(EngineArgs(max_num_seqs=32, max_model_len=256, kv_cache_memory=256 * 2**20))
    scheduler = engine.scheduler
    for i in range(60):
        params = SamplingParams(max_tokens=8 + i % 9, temperature=0.0, ignore_eos=True)
        scheduler.add(Request(f"r{i}", [100 + i, 7, 9, 11], params, arrival=i))
    engine.step()
    assert len(scheduler.running) == 32
    scheduler.live_cap = 4
    seen = [32]
    while len(scheduler.running) > 4:
        engine.step()
        seen.append(len(scheduler.running))
    assert seen == sorted(seen, reverse=True), "nobody is admitted while it drains"
    engine.step()
    assert len(scheduler.running) <= 4
    scheduler.live_cap = 24
    waiting = len(scheduler.waiting)
    ended = len([output for output in engine.step() if output.finish_reason is not None])
    assert len(scheduler.running) == min(24, 4 + waiting) - ended
    while scheduler.has_work:
        engine.step()
    assert scheduler.counters.preemptions == 0
    assert scheduler.counters.finished.total() == 60
    scheduler.check_integrity()
