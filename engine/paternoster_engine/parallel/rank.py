"""One rank's part of the model and of the KV pool."""

from dataclasses import dataclass

import torch

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.limits import EngineLimits
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint, open_checkpoint
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.source import resolve_source
from paternoster_engine.parallel.messages import Start
from paternoster_engine.parallel.sharding import shard_config, shard_loader
from paternoster_engine.process_group import ProcessGroup, Ranks
from paternoster_engine.runner.cuda.free_memory import memory_for_kv_cache
from paternoster_engine.runner.device import rank_device, rank_threads, resolve_device, resolve_dtype, resolve_kv_dtype
from paternoster_engine.runner.kv_pool import HostKVCache, KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.step_input import HostStep


@dataclass(frozen=True, slots=True)
class ParallelRank:
    """What a rank computes with."""

    model: Decoder
    kv_cache: tuple[torch.Tensor, ...]
    host: HostKVCache

    @classmethod
    def join_group(cls, start: Start) -> "ParallelRank":
        """Meet the other ranks and load this one's part; returns when all have loaded theirs."""
        args, size = start.args, start.args.tensor_parallel_size
        device = rank_device(resolve_device(args.device), start.rank, size)
        dtype = resolve_dtype(args.dtype, device)
        kv_dtype = resolve_kv_dtype(args.kv_cache_dtype, dtype, device)
        torch.set_num_threads(rank_threads(args.threads, size))
        ranks = ProcessGroup(start.rank, size, device, start.rendezvous, fixed_order=args.batch_invariant)
        checkpoint = open_checkpoint(resolve_source(args.model))
        model = load_model(args, checkpoint, dtype, device, ranks)
        limits = EngineLimits.resolve_limits(args, checkpoint.config, device)
        memory = limits.kv_cache_memory
        if measures_memory(limits, device):
            memory = memory_for_kv_cache(model, kv_dtype, device, limits, args.gpu_memory_utilization, ranks)
        # The pool is sized by the whole model, so all ranks have the same number of blocks.
        shape = KVPoolShape.fit_memory(checkpoint.config, args.block_size, kv_dtype, memory)
        kv_cache = allocate_kv_cache(shape, model.config, kv_dtype, device)
        host = HostKVCache(host_blocks(args, shape), kv_cache)
        await_all(ranks, device)
        return cls(model, kv_cache, host)

    def compute_step(self, step: HostStep) -> None:
        """This rank's part of a step; logits go to rank 0."""
        self.model.forward(step.on_device(self.kv_cache[0], self.model.plan_attention), self.kv_cache)


def load_model(
    args: EngineArgs, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, ranks: Ranks
) -> Decoder:
    """The part of the model that belongs to ``ranks.rank``; raises :class:`ModelError`."""
    config = shard_config(checkpoint.config, ranks.size)
    tensor = shard_loader(checkpoint.config, checkpoint.get_tensor, ranks.rank, ranks.size)
    return Decoder(config, tensor, dtype, device, ranks, invariant=args.batch_invariant, quantization=args.quantization)


def measures_memory(limits: EngineLimits, device: torch.device) -> bool:
    """Whether the KV pool takes what is free on the devices: all ranks must measure, or none."""
    return limits.kv_cache_memory == 0 and device.type == "cuda"


def host_blocks(args: EngineArgs, shape: KVPoolShape) -> int:
    """Blocks that host memory has room for, over all ranks; 0 without swapping."""
    return 0 if args.preemption == "recompute" else args.swap_memory // shape.block_bytes


def await_all(ranks: Ranks, device: torch.device) -> None:
    """Return when every rank has come to this point."""
    ranks.all_reduce(torch.zeros(1, device=device)).item()
