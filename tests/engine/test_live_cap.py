"""The live cap of a real engine under load: lowering it drains, raising it acts at the next step."""

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams


def test_from_8_to_2_and_back_without_a_preemption() -> None:
    """Invariant I14 (``core/test_invariants.py``) holds here with few tokens of a real model, which are slow."""
    engine, _, _ = build_engine(EngineArgs(max_num_seqs=8, max_model_len=256, kv_cache_memory=64 * 2**20))
    scheduler = engine.scheduler
    for i in range(16):
        params = SamplingParams(max_tokens=3 + i % 4, temperature=0.0, ignore_eos=True)
        scheduler.add(Request(RequestSpec(f"r{i}", [100 + i, 7, 9, 11], params, arrival=i)))
    engine.step()
    assert len(scheduler.running) == 8
    scheduler.live_cap = 2
    seen = [8]
    while len(scheduler.running) > 2:
        engine.step()
        seen.append(len(scheduler.running))
    assert len(seen) > 2
    assert seen == sorted(seen, reverse=True), "nobody is admitted while it drains"
    engine.step()
    assert len(scheduler.running) <= 2
    running, waiting = len(scheduler.running), len(scheduler.waiting)
    assert waiting >= 6
    scheduler.live_cap = 6
    ended = len([output for output in engine.step() if output.finish_reason is not None])
    assert len(scheduler.running) == min(6, running + waiting) - ended
    while scheduler.has_work:
        engine.step()
    assert scheduler.counters.preemptions == 0
    assert scheduler.counters.finished.total() == 16
    scheduler.check_integrity()
