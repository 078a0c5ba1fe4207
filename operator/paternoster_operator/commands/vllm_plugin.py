"""``paternoster vllm-plugin``: the plugin of vLLM as a folder for PYTHONPATH."""

import argparse
from pathlib import Path

from paternoster_contract.cli.terminal import print_error

HELP = "write the plugin by which the operator steers vLLM into a folder for its PYTHONPATH"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="folder to write, made if need be")


def run(args: argparse.Namespace) -> int:
    from paternoster_operator.engines.vllm_plugin import write_plugin

    try:
        write_plugin(args.folder)
    except OSError as error:
        print_error(f"paternoster vllm-plugin: {args.folder}: {error.strerror}")
        return 1
    return 0
