"""A small model with random weights, and engines that run it."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_runner, load_ranks
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.limits import EngineLimits
from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.source import resolve_source
from paternoster_engine.parallel.parallel_runner import ParallelRunner
from paternoster_engine.parallel.rank import load_model
from paternoster_engine.process_group import ProcessGroup
from paternoster_engine.runner.cuda.free_memory import memory_for_kv_cache
from paternoster_engine.runner.kv_pool import KVPoolShape

VOCAB = 101
"""No two ranks have as many rows of it."""
CONFIG = {
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
}


CPU = torch.device("cpu")
BLOCKS, BLOCK_SIZE, HOST_BLOCKS = 12, 8, 16


def save_tiny(
    folder: Path, *, architecture: str = "llama", tied: bool = False, seed: int = 0, poisoned: Sequence[int] = ()
) -> str:
    """Write the model into ``folder``; its address. ``poisoned``: tokens whose rows of the embedding are NaN."""
    generator = torch.Generator().manual_seed(seed)

    def weight(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * shape[-1] ** -0.5

    tensors = {"model.embed_tokens.weight": weight(VOCAB, 64) * 8, "model.norm.weight": torch.ones(64)}
    tensors["model.embed_tokens.weight"][list(poisoned)] = float("nan")
    if not tied:
        tensors["lm_head.weight"] = weight(VOCAB, 64)
    for layer in range(CONFIG["num_hidden_layers"]):
        sizes = {
            "self_attn.q_proj": (64, 64),
            "self_attn.k_proj": (32, 64),
            "self_attn.v_proj": (32, 64),
            "self_attn.o_proj": (64, 64),
            "mlp.gate_proj": (96, 64),
            "mlp.up_proj": (96, 64),
            "mlp.down_proj": (64, 96),
        }
        for name, size in sizes.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = weight(*size)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = 1 + 0.1 * torch.randn(64, generator=generator)
        for name in ("q_norm", "k_norm") if architecture == "qwen3" else ():
            tensors[f"model.layers.{layer}.self_attn.{name}.weight"] = 1 + torch.randn(16, generator=generator)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**CONFIG, "model_type": architecture, "tie_word_embeddings": tied}))
    (folder / "tokenizer.json").write_text("{}")
    return folder.as_uri()


def build(model: str, ranks: int, **settings: object) -> Engine:
    """An engine whose pool is small, so that it swaps."""
    checkpoint = open_checkpoint(resolve_source(model))
    block = KVPoolShape.fit_memory(checkpoint.config, BLOCK_SIZE, torch.float32, 10**7).block_bytes
    args = EngineArgs(
        model=model,
        tensor_parallel_size=ranks,
        dtype="float32",
        device="cpu",
        threads=ranks,
        block_size=BLOCK_SIZE,
        kv_cache_memory=BLOCKS * block,
        preemption="swap",
        swap_memory=HOST_BLOCKS * block,
        **settings,
    )
    shape = KVPoolShape.fit_memory(checkpoint.config, BLOCK_SIZE, torch.float32, args.kv_cache_memory)
    config = SchedulerConfig(
        max_num_seqs=4,
        max_batched_tokens=24,
        max_model_len=128,
        block_size=BLOCK_SIZE,
        num_blocks=BLOCKS,
        preemption="swap",
        host_blocks=HOST_BLOCKS,
    )
    scheduler = Scheduler(config)
    loaded = load_ranks(args, checkpoint, torch.float32, CPU)
    return Engine(scheduler, build_runner(args, loaded, shape, torch.float32, CPU, scheduler.config))


def inner(engine: Engine) -> ParallelRunner:
    assert isinstance(engine.runner, ParallelRunner)
    return engine.runner


def measure(rank: int, model: str, store: Path, free: int) -> int:
    """What one of two ranks, which has ``free`` bytes, finds that the KV pool of both may take."""
    args = EngineArgs(model=model, tensor_parallel_size=2, device="cpu")
    group = ProcessGroup(rank, 2, CPU, store)
    part = load_model(args, open_checkpoint(resolve_source(model)), torch.float32, CPU, group)
    limits = EngineLimits(4, 24, 128, BLOCK_SIZE, kv_cache_memory=0)
    memory = memory_for_kv_cache(part, torch.float32, CPU, limits, 0.9, group, lambda: free)
    group.close()
    return memory
