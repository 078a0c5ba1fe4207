"""The real model's first layers, each of its steps computed after the next one was planned: nothing it says changes."""

import pytest
import torch

from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.runner.kv_pool import HostKVCache, KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.sampling.sampler import Sampler

CPU = torch.device("cpu")
BLOCK_SIZE = 8
CONFIG = SchedulerConfig(
    max_num_seqs=4, max_batched_tokens=24, max_model_len=64, block_size=BLOCK_SIZE, num_blocks=11, prefix_cache=True
)
SETTINGS = (
    {"temperature": 0.0},
    {"temperature": 0.9, "top_p": 0.9},
    {"temperature": 0.0, "repetition_penalty": 1.3, "min_tokens": 5, "logprobs": 2},
    {"temperature": 0.7, "frequency_penalty": 0.5, "prompt_logprobs": 1},
)


def _requests() -> list[Request]:
    """Twelve of all kinds, with a common beginning; every other one has many tokens to stop at."""
    return [
        Request(
            RequestSpec(
                f"r{i}",
                [1, 2, 3, 4, 5, 6, 7, 8, *range(50 + i, 52 + 3 * i)][: 4 + 3 * i],
                SamplingParams(
                    max_tokens=6 + i % 5,
                    ignore_eos=True,
                    stop_token_ids=tuple(range(0, 8192, 6)) if i % 2 else (),
                    **SETTINGS[i % len(SETTINGS)],
                ),
                seed=i,
            )
        )
        for i in range(12)
    ]


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_tokens_reasons_and_logprobs_are_those_of_a_plain_run(small: Decoder, preemption: str) -> None:
    config = CONFIG if preemption == "recompute" else CONFIG.replace(preemption=preemption, host_blocks=20)
    results, preemptions = [], []
    for overlap in (False, True):
        scheduler = Scheduler(config.replace(overlap=overlap))
        shape = KVPoolShape(config.num_blocks, BLOCK_SIZE, 0)
        cache = allocate_kv_cache(shape, small.config, torch.float32, CPU)
        host = HostKVCache(config.host_blocks, cache) if config.host_blocks else None
        engine = Engine(scheduler, ModelRunner(small, cache, Sampler(small.config.vocab_size, CPU), host))
        requests = _requests()
        for request in requests:
            scheduler.add(request)
        while scheduler.has_work:
            engine.step()
        scheduler.check_integrity()
        assert scheduler.pool.num_used == 0
        preemptions.append(scheduler.counters.preemptions)
        results.append(
            [
                (r.output, r.finish_reason, [p.token for p in r.logprobs], [p.token for p in r.prompt_logprobs])
                for r in requests
            ]
        )
    assert results[0] == results[1]
    assert min(preemptions) > 0
