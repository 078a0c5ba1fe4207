"""``paternoster fit``: which GPUs a model fits on, before it is downloaded."""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from paternoster_contract.labels import MODEL_EXIT_STATUS

if TYPE_CHECKING:
    from paternoster_engine.model.config import ModelConfig

HELP = "say how much memory a model takes, and on which GPUs how many sequences fit, from its config.json alone"
GIB = 2**30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", metavar="ADDRESS", help="as in serve --model; config.json of what is remote")
    parser.add_argument("--tokens", type=_count, default=4096, help="of a sequence, prompt and answer (default: 4096)")
    parser.add_argument(
        "--gpu-memory-utilization", type=_share, default=0.9, help="share of the memory that is used (default: 0.9)"
    )


def run(args: argparse.Namespace) -> int:
    from paternoster_engine.model.errors import ModelError, ModelUnavailable
    from paternoster_sources.errors import SourceError

    try:
        config = _config(args.address)
    except (ModelError, SourceError) as error:
        print(f"paternoster fit: {error}", file=sys.stderr)
        later = error.transient if isinstance(error, SourceError) else isinstance(error, ModelUnavailable)
        return 1 if later else MODEL_EXIT_STATUS
    _print(config, args.tokens, args.gpu_memory_utilization)
    return 0


def _config(address: str) -> "ModelConfig":
    from paternoster_engine.model.checkpoint import open_checkpoint
    from paternoster_engine.model.families.read import config_from_hf
    from paternoster_engine.model.source import resolve
    from paternoster_engine.model.weights.model_folder import ModelFolder
    from paternoster_sources.address import is_remote, parse
    from paternoster_sources.fetch import fetch_side_file

    if not is_remote(address) or parse(address).file is not None:
        return open_checkpoint(resolve(address)).config
    with TemporaryDirectory() as folder:
        fetch_side_file(address, "config.json", Path(folder))
        return config_from_hf(ModelFolder(Path(folder)).json("config.json"), parse(address).name)


def _print(config: "ModelConfig", tokens: int, utilization: float) -> None:
    import torch
    from rich.console import Console
    from rich.table import Table

    from paternoster_engine.fit import fits, parameters, sequence_bytes, token_bytes, window_bytes

    dtype = torch.bfloat16
    count = parameters(config)
    windows = window_bytes(config, config.context_length, dtype)
    bounded = f" and at most {windows / 2**20:.1f} MiB a sequence in layers with a window" if windows else ""
    print(
        f"{config.name}: {count / 1e9:.2f} billion parameters, {count * dtype.itemsize / GIB:.1f} GiB in bfloat16; "
        f"{token_bytes(config, dtype) / 1024:.0f} KiB of KV cache a token{bounded}; context {config.context_length}"
    )
    table = Table("GPUs", f"tokens in the KV cache, in sequences of {tokens}", "such sequences")
    length = min(tokens, config.context_length)
    needed = sequence_bytes(config, length, dtype)
    for fit in fits(config, dtype, utilization):
        table.add_row(f"{fit.count} x {fit.gpu}", f"{fit.memory * length // needed:,}", f"{fit.memory // needed:,}")
    if not table.row_count:
        print("It fits on none of the GPUs that are known here, up to 8 of them.")
        return
    Console().print(table)
    print(f"At {utilization:.0%} of the memory; a step's own, 1 to 2 GiB on each GPU, is not taken off.")


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 2**24:
        raise argparse.ArgumentTypeError(f"is {text!r}: must be a whole number from 1 to {2**24}")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"is {text!r}: must be above 0 and at most 1")
    return share
