"""Each family's logits on two ranks, which are threads here: what they exchange is the same."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from tests.engine.families import tiny_families as tiny

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.block_table import BlockTable
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.parallel.sharding import possible_sizes, shard_config, shard_loader
from paternoster_engine.process_group import ALONE, Ranks
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.step_input import host_step

SIZE = 2


class Together:
    """What two threads leave for each other."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(SIZE, timeout=60)
        self.parts: list[torch.Tensor] = [torch.empty(0)] * SIZE


class ThreadRanks(Ranks):
    """One of the threads."""

    size = SIZE

    def __init__(self, rank: int, together: Together) -> None:
        self.rank = rank
        self._together = together

    def all_reduce(self, part: torch.Tensor) -> torch.Tensor:
        return torch.stack(self._all(part)).sum(0)

    def gather_columns(self, part: torch.Tensor) -> torch.Tensor:
        return torch.cat(self._all(part), 1)

    def _all(self, part: torch.Tensor) -> list[torch.Tensor]:
        self._together.parts[self.rank] = part.clone()
        self._together.barrier.wait()
        parts = list(self._together.parts)
        self._together.barrier.wait()
        return parts


@torch.inference_mode()
def run(checkpoint: Checkpoint, ranks: Ranks) -> torch.Tensor:
    """Logits after a prompt whole, and after one in two chunks."""
    config = shard_config(checkpoint.config, ranks.size)
    tensor = shard_loader(checkpoint.config, checkpoint.get_tensor, ranks.rank, ranks.size)
    model = Decoder(config, tensor, torch.float32, tiny.CPU, ranks)
    num_groups = len(config.layer_groups)
    blocks = 9 * num_groups
    cache = allocate_kv_cache(KVPoolShape(2 * blocks, tiny.BLOCK_SIZE, 0), config, torch.float32, tiny.CPU)
    prompt = torch.randint(tiny.VOCAB, (70,), generator=torch.Generator().manual_seed(3)).tolist()
    first, second = (
        Request(
            RequestSpec(f"r{i}", prompt, SamplingParams(max_tokens=1)),
            block_table=BlockTable(list(range(1 + blocks * i, 1 + blocks * (i + 1)))),
        )
        for i in range(2)
    )
    rows = []
    for scheduled in (
        [ScheduledRequest(first, 0, 70, samples=True), ScheduledRequest(second, 0, 33, samples=False)],
        [ScheduledRequest(second, 33, 37, samples=True)],
    ):
        step = host_step(scheduled, num_groups).on_device(cache[0], model.plan_attention)
        rows.append(model.forward(step, cache))
    return torch.cat(rows)


def test_logits_are_those_of_one_rank(name: str, checkpoint_of: Callable[[str, str], Checkpoint]) -> None:
    checkpoint = checkpoint_of(name, "safetensors")
    expected = run(checkpoint, ALONE)
    if SIZE not in possible_sizes(checkpoint.config):
        # Three key heads are for one rank or three.
        assert checkpoint.config.num_kv_heads % SIZE
        return
    together = Together()
    with ThreadPoolExecutor(SIZE) as pool:
        parts = list(pool.map(lambda rank: run(checkpoint, ThreadRanks(rank, together)), range(SIZE)))
    torch.testing.assert_close(parts[0], expected, rtol=1e-4, atol=1e-4)
