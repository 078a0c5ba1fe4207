"""``paternoster vllm-plugin``: the plugin of vLLM as a folder for PYTHONPATH."""

import argparse
import sys
from pathlib import Path

HELP = "write the plugin by which the operator steers vLLM into a folder for its PYTHONPATH"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="folder to write, made if need be")


def run(args: argparse.Namespace) -> int:
    from paternoster_operator.engines.vllm_plugin import write_plugin

    try:
        write_plugin(args.folder)
    except OSError as error:
        print(f"paternoster vllm-plugin: {args.folder}: {error.strerror}", file=sys.stderr)
        return 1
    return 0
