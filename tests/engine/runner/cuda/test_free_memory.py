"""What the KV pool may take of the device's memory."""

import pytest
import torch

from paternoster_engine.limits import EngineLimits
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.process_group import Ranks
from paternoster_engine.runner.cuda.free_memory import memory_for_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner

CPU = torch.device("cpu")
LIMITS = EngineLimits(max_num_seqs=5, max_batched_tokens=23, max_model_len=60, block_size=4, kv_cache_memory=0)


class OneOfThree(Ranks):
    """Sums and logits that no other rank adds to, and others that have less room."""

    size = 3

    def __init__(self, rank: int, room: int) -> None:
        self.rank = rank
        self._room = room

    def all_reduce_min(self, number: int) -> int:
        return min(number, self._room)


def test_a_share_of_what_is_free_after_the_largest_step(tiny: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    forward = Decoder.forward

    def telling(self: Decoder, step: object, cache: object) -> object:
        calls.append("step")
        return forward(self, step, cache)

    def free() -> int:
        calls.append("asked")
        return 1000

    monkeypatch.setattr(Decoder, "forward", telling)
    assert memory_for_kv_cache(tiny, torch.float32, CPU, LIMITS, 0.85, free_bytes=free) == 850
    assert calls == ["step", "asked"]


@pytest.mark.parametrize(("room", "memory"), [(10**9, 3 * 850), (600, 3 * 600)])
def test_the_rank_with_the_least_room_decides(tiny: Decoder, room: int, memory: int) -> None:
    for rank in range(3):
        ranks = OneOfThree(rank, room)
        assert memory_for_kv_cache(tiny, torch.float32, CPU, LIMITS, 0.85, ranks, lambda: 1000) == memory


def test_only_rank_0_samples(tiny: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a rank has its part of the logits alone")

    monkeypatch.setattr(ModelRunner, "execute", refuse)
    memory_for_kv_cache(tiny, torch.float32, CPU, LIMITS, 0.85, OneOfThree(2, 1000), lambda: 1000)
