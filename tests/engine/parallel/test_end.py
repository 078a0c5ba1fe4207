"""How ranks agree on a number, and how rank 0 ends when CUDA is lost or the group cannot be left; by one rank alone."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.engine.parallel.tiny import BLOCK_SIZE, VOCAB, save_tiny
from torch import distributed

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import FinishReason, Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.source import resolve_source
from paternoster_engine.parallel import parallel_runner, workers
from paternoster_engine.parallel.parallel_runner import ParallelRunner
from paternoster_engine.parallel.rank import load_model
from paternoster_engine.parallel.workers import Workers
from paternoster_engine.process_group import ALONE, ProcessGroup
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_engine.sampling.sampler import Sampler

CPU = torch.device("cpu")


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A group that waits for ranks which will never come."""
    leave, released = distributed.destroy_process_group, threading.Event()
    monkeypatch.setattr(distributed, "destroy_process_group", released.wait)
    yield
    released.set()
    leave()


def test_the_least_of_one_is_its_own(tmp_path: Path) -> None:
    group = ProcessGroup(0, 1, CPU, tmp_path / "store")
    assert group.all_reduce_min(2**40 + 1) == ALONE.all_reduce_min(2**40 + 1) == 2**40 + 1
    assert group.close()


def test_leaving_does_not_wait_for_ever(tmp_path: Path, stuck: None) -> None:
    assert not ProcessGroup(0, 1, CPU, tmp_path / "store").close(timeout=0.01)


@pytest.mark.parametrize(("fault", "statuses"), [("a rank is lost", [1]), (None, [])])
def test_a_lost_engine_ends_even_if_the_group_cannot_be_left(
    fault: str | None, statuses: list[int], stuck: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that drained ends in order, with its own status."""
    ended: list[int] = []
    monkeypatch.setattr(workers.os, "_exit", ended.append)
    leave = ProcessGroup.close
    monkeypatch.setattr(ProcessGroup, "close", lambda self: leave(self, timeout=0.01))
    ranks = Workers(EngineArgs(), CPU)
    if fault is not None:
        ranks.mark_lost(fault)
    ranks.close()
    assert ended == statuses


class Broken:
    """A sampler that meets an error."""

    def sample(self, logits: torch.Tensor, requests: list[Request]) -> list[int]:
        raise RuntimeError("an illegal memory access was encountered")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Rank 0 of a group of one: what it does about errors needs no other."""
    args = EngineArgs(model=save_tiny(tmp_path), device="cpu", kv_cache_memory=1_000_000)
    checkpoint, ranks = open_checkpoint(resolve_source(args.model)), Workers(args, CPU)
    model = load_model(args, checkpoint, torch.float32, CPU, ranks.ranks)
    cache = allocate_kv_cache(KVPoolShape(9, BLOCK_SIZE, 0), model.config, torch.float32, CPU)
    runner = ParallelRunner(model, cache, Sampler(VOCAB, CPU), ranks)
    yield Engine(
        Scheduler(
            SchedulerConfig(
                max_num_seqs=4, max_batched_tokens=24, max_model_len=64, block_size=BLOCK_SIZE, num_blocks=9
            )
        ),
        runner,
    )
    runner.close()


def outcome(engine: Engine) -> FinishReason | None:
    request = Request(RequestSpec("r", [1, 2, 3], SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True)))
    engine.scheduler.add(request)
    while engine.scheduler.has_work:
        engine.step()
    return request.finish_reason


def test_an_error_in_sampling_loses_the_ranks_if_the_device_is_lost(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of an earlier kernel, which surfaces when tokens are read."""
    runner = engine.runner
    assert isinstance(runner, ParallelRunner)
    sampler = runner._sampler
    monkeypatch.setattr(runner, "_sampler", Broken())
    assert outcome(engine) is FinishReason.ERROR
    assert engine.fault is None, "the device computes: other requests can go on"
    monkeypatch.setattr(runner, "_sampler", sampler)
    assert outcome(engine) is FinishReason.LENGTH

    monkeypatch.setattr(runner, "_sampler", Broken())
    monkeypatch.setattr(parallel_runner, "device_fault", lambda device: f"device {device} is lost")
    assert outcome(engine) is FinishReason.ERROR
    assert engine.fault == "device cpu is lost"
    # No other step begins.
    monkeypatch.setattr(runner, "_sampler", sampler)
    assert outcome(engine) is FinishReason.ERROR
