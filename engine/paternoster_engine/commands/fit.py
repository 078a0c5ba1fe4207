"""``paternoster fit``: which GPUs a model fits on, before it is downloaded."""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from paternoster_contract.cli.terminal import print_error, print_line
from paternoster_contract.labels import MODEL_EXIT_STATUS

if TYPE_CHECKING:
    from paternoster_engine.model.config import ModelConfig

HELP = (
    "say how much memory a model takes, and on which GPUs how many sequences fit, from its config.json alone; with "
    "--profile also how long steps would take, for `paternoster simulate`"
)
GIB = 2**30
PROFILE_COMMENTS = (
    "Written by `paternoster fit`: a roofline of the GPU's data sheet. Nothing in it was measured. The shares of the",
    "peaks that it assumes are in paternoster_engine/fit/step_cost.py, and those of a start in profile.py beside it.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", metavar="ADDRESS", help="as in serve --model; config.json of what is remote")
    parser.add_argument(
        "--tokens", type=_parse_count, default=4096, help="of a sequence, prompt and answer (default: 4096)"
    )
    parser.add_argument(
        "--gpu-memory-utilization",
        type=_parse_share,
        default=0.9,
        help="share of the free memory that the KV cache takes (default: 0.9)",
    )
    parser.add_argument(
        "--kv-cache-dtype", choices=("auto", "int8", "fp8"), default="auto", help="as in serve; auto is bfloat16"
    )
    parser.add_argument("--gpu", metavar="NAME", help="this kind of GPU alone, such as H100")
    parser.add_argument("--count", type=_parse_count, metavar="N", help="this number of them alone")
    parser.add_argument(
        "--profile", metavar="FILE", help="write a hardware profile of the first that fits; needs --gpu"
    )
    parser.add_argument(
        "--engine",
        choices=("Paternoster", "VLLM"),
        default="Paternoster",
        help="whose numbers replicas of the profile report (default: Paternoster)",
    )
    parser.add_argument(
        "--usd-per-gpu-hour", type=_parse_price, default=0.0, metavar="USD", help="price, for the profile (default: 0)"
    )


def run(args: argparse.Namespace) -> int:
    from paternoster_engine.model.errors import ModelError, ModelUnavailable
    from paternoster_sources.errors import SourceError

    if fault := _argument_fault(args):
        print_error(f"paternoster fit: {fault}")
        return 2
    try:
        config = _read_model_config(args.address)
    except (ModelError, SourceError) as error:
        print_error(f"paternoster fit: {error}")
        later = error.transient if isinstance(error, SourceError) else isinstance(error, ModelUnavailable)
        return 1 if later else MODEL_EXIT_STATUS
    return _print_answer(config, args)


def _argument_fault(args: argparse.Namespace) -> str | None:
    """What is wrong with the arguments, before a model is fetched."""
    from paternoster_engine.fit.gpus import GPUS

    if args.gpu is not None and args.gpu not in GPUS:
        return f"gpu is {args.gpu!r}: must be one of {', '.join(GPUS)}"
    if args.profile and args.gpu is None:
        return "gpu is unset: must name the GPU that the profile is of"
    if args.profile and not Path(args.profile).absolute().parent.is_dir():
        return f"profile is {args.profile}: must be in a folder that exists"
    return None


def _read_model_config(address: str) -> "ModelConfig":
    from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
    from paternoster_engine.model.families.read import config_from_hf
    from paternoster_engine.model.source import resolve_source
    from paternoster_engine.model.weights.model_folder import ModelFolder
    from paternoster_sources.address import is_remote, parse_address
    from paternoster_sources.fetch import fetch_side_file

    if not is_remote(address) or parse_address(address).file is not None:
        return open_checkpoint(resolve_source(address)).config
    with TemporaryDirectory() as folder:
        fetch_side_file(address, "config.json", Path(folder))
        return config_from_hf(ModelFolder(Path(folder)).json("config.json"), parse_address(address).name)


def _print_answer(config: "ModelConfig", args: argparse.Namespace) -> int:
    import torch
    from rich.table import Table

    from paternoster_contract.cli.console import QuotingConsole
    from paternoster_engine.fit.gpus import GPUS
    from paternoster_engine.fit.memory import count_parameters, find_fits, sequence_bytes, token_bytes, window_bytes
    from paternoster_engine.fit.profile import derived_profile
    from paternoster_engine.runner.device import KV_DTYPES

    dtype = torch.bfloat16
    kv_dtype = KV_DTYPES.get(args.kv_cache_dtype, dtype)
    count = count_parameters(config)
    windows = window_bytes(config, config.context_length, kv_dtype)
    bounded = f" and at most {windows / 2**20:.1f} MiB a sequence in layers with a window" if windows else ""
    print_line(
        f"{config.name}: {count / 1e9:.2f} billion parameters, {count * dtype.itemsize / GIB:.1f} GiB in bfloat16; "
        f"{token_bytes(config, kv_dtype) / 1024:.0f} KiB of KV cache a token{bounded}; context {config.context_length}"
    )
    table = Table("GPUs", f"tokens in the KV cache, in sequences of {args.tokens}", "such sequences")
    length = min(args.tokens, config.context_length)
    needed = sequence_bytes(config, length, kv_dtype)
    gpus = GPUS if args.gpu is None else {args.gpu: GPUS[args.gpu]}
    found = [
        fit
        for fit in find_fits(config, dtype, args.gpu_memory_utilization, gpus, kv_dtype)
        if args.count is None or fit.count == args.count
    ]
    for fit in found:
        table.add_row(f"{fit.count} x {fit.gpu}", f"{fit.memory * length // needed:,}", f"{fit.memory // needed:,}")
    if not found:
        print_line(f"It fits on none of {args.count or '1 to 8'} x {' or '.join(gpus)}.")
        return 1 if args.profile else 0
    QuotingConsole().print(table)
    print_line(
        "An estimate: 2.5 GB on each GPU are taken for CUDA and the largest step. An engine measures what is free."
    )
    if args.profile:
        price = args.usd_per_gpu_hour
        profile = derived_profile(
            config, found[0], dtype, usd_per_gpu_hour=price, kv_dtype=kv_dtype, engine=args.engine
        )
        Path(args.profile).write_text(profile.to_yaml(PROFILE_COMMENTS), encoding="utf-8")
        print_line(f"profile: {args.profile} ({profile.name}; {profile.source})")
    return 0


def _parse_count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 2**24:
        raise argparse.ArgumentTypeError(f"is {text!r}: must be a whole number from 1 to {2**24}")
    return int(text)


def _parse_share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"is {text!r}: must be above 0 and at most 1")
    return share


def _parse_price(text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < 1e6:
        raise argparse.ArgumentTypeError(f"is {text!r}: must be a number from 0 to 1000000")
    return price
