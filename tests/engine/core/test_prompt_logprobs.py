"""A prompt with log probabilities is computed where it has none yet, whatever the cache holds of it."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.core.fake_model import CheckedEngine, unbatched

from paternoster_engine.core.config import SchedulerConfig

SIZE = 4


def _config(**settings: object) -> SchedulerConfig:
    defaults = {"max_num_seqs": 4, "max_batched_tokens": 8, "max_model_len": 64, "block_size": SIZE, "num_blocks": 20}
    return SchedulerConfig(**{**defaults, **settings})  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None)
@given(
    # Few beginnings, so that many are in the cache.
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 30), st.booleans()), min_size=1, max_size=8),
    st.sampled_from(["recompute", "swap"]),
    st.integers(0, 4),
    st.integers(4, 12),
)
def test_all_of_a_prompt_is_told_once(
    cases: list[tuple[int, int, bool]], preemption: str, force: int, budget: int
) -> None:
    host_blocks = 40 if preemption == "swap" else 0
    engine = CheckedEngine(
        _config(preemption=preemption, host_blocks=host_blocks, force_preempt_every=force, max_batched_tokens=budget)
    )
    requests = []
    for beginning, length, wants_logprobs in cases:
        requests.append(
            engine.add([beginning, *range(2, length + 1)], 6, prompt_logprobs=0 if wants_logprobs else None)
        )
        engine.step()
    engine.run()
    for request, (_, _, wants_logprobs) in zip(requests, cases, strict=True):
        assert [entry.token for entry in request.prompt_logprobs] == (request.prompt[1:] if wants_logprobs else [])
        assert request.output == unbatched(request.prompt, 6, 64)


def test_who_is_told_all_uses_the_cache_again() -> None:
    """Preempted after its prompt's log probabilities came, a request finds its own blocks."""
    engine = CheckedEngine(_config(force_preempt_every=8, max_batched_tokens=16))
    request = engine.add(list(range(16)), 10, prompt_logprobs=0)
    engine.run()
    assert request.num_preemptions == 1
    assert request.num_cached >= 16
    assert engine.scheduler.counters.prefix_hits > 0


def test_who_asks_does_not_wait_for_a_block_it_cannot_use() -> None:
    engine = CheckedEngine(_config(max_batched_tokens=40))
    engine.add(list(range(16)), 2)
    asking = engine.add(list(range(16)), 2, prompt_logprobs=0)
    assert [item.request for item in engine.step().scheduled][1:] == [asking]
    assert engine.scheduler.counters.prefix_waits == 0
