"""The steps before the first request are as large as a step can be, and take both ways through attention."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paternoster_engine.core.batch import Batch, StepResult
from paternoster_engine.limits import EngineLimits
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.runner.cuda.warm_up import largest_step, longest_decode, warm_up
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.runner.step_input import host_step
from paternoster_engine.sampling.device_sampler import DeviceSampler

CPU = torch.device("cpu")

limits = st.builds(
    lambda seqs, more, length, block: EngineLimits(seqs, seqs + more, length, block, 0),
    st.integers(1, 300),
    st.integers(0, 5000),
    st.integers(16, 3000),
    st.sampled_from([16, 32, 64]),
)


@settings(deadline=None)
@given(limits)
def test_the_largest_step_reaches_every_limit(limits: EngineLimits) -> None:
    batch = largest_step(limits)
    assert batch.num_tokens == min(limits.max_batched_tokens, limits.max_num_seqs * limits.max_model_len)
    assert len(batch.scheduled) == limits.max_num_seqs
    assert max(item.stop for item in batch.scheduled) == limits.max_model_len
    for item in batch.scheduled:
        assert item.samples
        assert item.request.params.has_penalties
        assert item.num_tokens >= 1
        assert item.start >= 0
        assert item.stop == item.request.num_tokens
        assert len(item.request.block_table.block_ids) * limits.block_size >= item.stop


@settings(deadline=None)
@given(limits)
def test_neither_step_touches_more_than_the_smallest_pool(limits: EngineLimits) -> None:
    for batch in (largest_step(limits), longest_decode(limits)):
        assert {block for item in batch.scheduled for block in item.request.block_table.block_ids} == {1}
        assert {block for pair in batch.copies for block in pair} <= {1, 2}


def test_the_kernels_of_prompts_and_of_decodes_are_launched(tiny: Decoder) -> None:
    """The one that is for decodes alone is chosen by the longest query; keys are split by the longest sequence."""
    limits = EngineLimits(max_num_seqs=3, max_batched_tokens=40, max_model_len=90, block_size=16, kv_cache_memory=0)
    shape = KVPoolShape.fit_memory(tiny.config, 16, torch.float32, 100_000)
    cache = allocate_kv_cache(shape, tiny.config, torch.float32, CPU)

    launched: list[tuple[int, int]] = []

    class Noting(ModelRunner):
        def execute(self, batch: Batch) -> StepResult:
            ragged = host_step(batch.scheduled).ragged[0]
            launched.append((max(ragged.query_lens), max(ragged.seq_lens)))
            result = super().execute(batch)
            assert None not in result.tokens
            return result

    warm_up(Noting(tiny, cache, DeviceSampler(CPU)), limits)
    assert launched == [(14, 90), (1, 90)]
    # Null blocks are padding's: they must stay zeros.
    assert not any(layer[0].any() for layer in cache)
