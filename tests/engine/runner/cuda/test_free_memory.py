"""What the KV pool may take of the device's memory."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paternoster_contract.engine_args import EngineArgs
from paternoster_engine.model.llama import Llama
from paternoster_engine.runner.cuda.free_memory import largest_step, memory_for_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner


@given(st.integers(1, 64), st.integers(1, 300), st.integers(1, 5000))
def test_the_largest_step_fills_the_budget(block_size: int, max_num_seqs: int, tokens: int) -> None:
    batch = largest_step(block_size, max_num_seqs, tokens)
    assert batch.num_tokens == tokens
    assert len(batch.scheduled) == min(max_num_seqs, tokens)
    for item in batch.scheduled:
        assert item.samples
        assert item.num_tokens >= 1
        assert len(item.request.block_ids) * block_size >= item.stop
        assert 0 not in item.request.block_ids


def test_a_share_of_what_is_free_after_that_step(tiny: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    execute = ModelRunner.execute

    def telling(self: ModelRunner, batch: object) -> object:
        told.append("step")
        return execute(self, batch)

    def free() -> int:
        told.append("asked")
        return 1000

    monkeypatch.setattr(ModelRunner, "execute", telling)
    args = EngineArgs(block_size=4, max_num_seqs=5, max_batched_tokens=23, gpu_memory_utilization=0.85)
    memory = memory_for_kv_cache(tiny, torch.float32, torch.device("cpu"), args, 60, free)
    assert memory == 850
    assert told == ["step", "asked"]
