"""Loads models, each in a process of its own, and prints the peak of its memory over the bytes of its weights.

    echo '["ADDRESS", "SMALL", "DTYPE", RANK, RANKS, "QUANTIZATION"]' | python measure_load.py

For each line of input it forks, before anything but imports was done, and prints a line.

The peak is VmHWM's rise: all resident memory, mapped pages of files among it. The model at SMALL is loaded before, so
that the pages of libraries and what they keep for themselves are none of the rise. Held is what is more than before of
memory that is no file's. Weights in the blocks of a GGUF file take what the file does.
"""

import json
import math
import os
import sys
from pathlib import Path

import torch

from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.checkpoints.shapes import expected_shapes
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.layers.parts import Quantization
from paternoster_engine.model.source import resolve_source
from paternoster_engine.parallel.sharding import shard_config, shard_loader
from paternoster_engine.process_group import ALONE, Ranks


class Apart(Ranks):
    """A rank of several whose others are not there: it loads, and computes nothing."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def gather_columns(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


def memory(field: str) -> int:
    """Bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def size_of(name: str, shape: tuple[int, ...], dtype: torch.dtype, quantization: Quantization) -> int:
    """Bytes; in int8 each row of a matrix has a scale, and the embedding stays as it is."""
    if quantization != "int8" or len(shape) == 1 or name == "model.embed_tokens.weight":
        return math.prod(shape) * dtype.itemsize
    return math.prod(shape) + shape[0] * torch.float32.itemsize


def load(address: str, dtype: torch.dtype, rank: int, ranks: int, quantization: Quantization) -> Decoder:
    checkpoint = open_checkpoint(resolve_source(address))
    config = checkpoint.config
    tensor = shard_loader(config, checkpoint.get_tensor, rank, ranks)
    who = ALONE if ranks == 1 else Apart(rank, ranks)
    config, device = shard_config(config, ranks), torch.device("cpu")
    return Decoder(config, tensor, dtype, device, who, quantization=quantization)


def main(address: str, small: str, dtype: torch.dtype, rank: int, ranks: int, quantization: Quantization) -> None:
    torch.set_num_threads(1)
    config = open_checkpoint(resolve_source(address)).config
    weights = sum(size_of(name, shape, dtype, quantization) for name, shape in expected_shapes(config)) / ranks
    if quantization == "auto":
        weights = resolve_source(address).path.stat().st_size / ranks
    load(small, dtype, rank, ranks, quantization)
    # Peaks until now are forgotten.
    Path("/proc/self/clear_refs").write_text("5")
    before, others = memory("VmRSS"), memory("RssAnon")
    model = load(address, dtype, rank, ranks, quantization)
    peak, held = memory("VmHWM") - before, memory("RssAnon") - others
    assert model.config.num_layers == config.num_layers
    print(json.dumps({"peak": peak / weights, "held": held, "weights": weights}), flush=True)


if __name__ == "__main__":
    for line in sys.stdin:
        address, small, dtype, *others = json.loads(line)
        if (child := os.fork()) == 0:
            main(address, small, getattr(torch, dtype), *others)
            os._exit(0)
        if status := os.waitpid(child, 0)[1]:
            sys.exit(os.waitstatus_to_exitcode(status))
