"""With keys and values in int8 no answer depends on the schedule, and answers are as likely as with 16 bits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.tokenizer import Tokenizer
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.step_input import host_step
from paternoster_kernels.cpu.library import load_library

CHOSEN = (2, 6, 9, 18)
"""Prompts of 5, 32, 63 and 129 tokens."""
Outputs = list[list[int]]
SCHEDULES: dict[str, dict[str, Any]] = {
    "together": {},
    "in chunks": {"max_batched_tokens": 33, "max_num_seqs": 8},
    "recomputed every third step": {"force_preempt_every": 3},
    "swapped for want of blocks": {"num_blocks": 10, "preemption": "swap", "host_blocks": 40},
}


@pytest.fixture(scope="module")
def alone(scaled_engine: Any, prompts: Outputs) -> Outputs:
    outputs: Outputs = scaled_engine.run_alone(prompts, 1, CHOSEN)
    return outputs


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_any_schedule(scaled_engine: Any, prompts: Outputs, alone: Outputs, schedule: str) -> None:
    scheduler = scaled_engine.scheduler(**SCHEDULES[schedule])
    assert scaled_engine.run_mixed(scheduler, prompts, 1, CHOSEN) == alone
    preempted = schedule.startswith(("recomputed", "swapped"))
    assert (scheduler.counters.preemptions > 0) == preempted
    assert (scheduler.counters.swapped_in_blocks > 0) == schedule.startswith("swapped")


def test_warm_prefix_cache(scaled_engine: Any, prompts: Outputs, alone: Outputs) -> None:
    scheduler = scaled_engine.scheduler(prefix_cache=True)
    for _ in range(2):
        assert scaled_engine.run_mixed(scheduler, prompts, 1, CHOSEN) == alone
    assert scheduler.counters.cached_prompt_tokens > 0


@torch.inference_mode()
def test_perplexity(narrow_model: Decoder, tokenizer: Tokenizer) -> None:
    """Perplexity of two windows of 512 tokens of this project's licence."""
    text, cpu = tokenizer.encode((Path(__file__).parents[3] / "LICENSE").read_text()), torch.device("cpu")

    def perplexity(stored: torch.dtype) -> float:
        cache = allocate_kv_cache(KVPoolShape(16, 32, 0), narrow_model.config, stored, cpu)
        losses = []
        for window in (text[:512], text[512:1024]):
            request = Request(
                RequestSpec("r", window, SamplingParams(max_tokens=1)), block_table=BlockTable(list(range(1, 17)))
            )
            step = replace(host_step([ScheduledRequest(request, 0, 512, False)]), sample_rows=list(range(511)))
            logits = narrow_model.forward(step.on_device(cache[0], narrow_model.plan_attention), cache)
            losses.append(cross_entropy(logits.float(), torch.tensor(window[1:])))
        return float(torch.stack(losses).mean().exp())

    plain = perplexity(torch.float32 if load_library() is None else torch.bfloat16)
    assert 10 < plain < 25
    assert perplexity(torch.int8) == pytest.approx(plain, rel=0.005)
