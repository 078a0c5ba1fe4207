"""``paternoster crd``: the CustomResourceDefinition as it follows from the types."""

import argparse
from pathlib import Path

from paternoster_contract.cli.terminal import print_error, print_text

HELP = "print, write or check the CustomResourceDefinition"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", metavar="DIR", type=Path, help="write it into DIR")
    action.add_argument(
        "--check", metavar="DIR", type=Path, help="exit 1 unless the file in DIR is what would be written"
    )


def run(args: argparse.Namespace) -> int:
    from paternoster_operator.api.crd import FILE_NAME, render_crd

    text = render_crd()
    if args.write is not None:
        args.write.mkdir(parents=True, exist_ok=True)
        (args.write / FILE_NAME).write_text(text, encoding="utf-8")
        return 0
    if args.check is not None:
        path = args.check / FILE_NAME
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            print_error(f"{path} is not what the types say: run 'make generate'")
            return 1
        return 0
    print_text(text.rstrip("\n"))
    return 0
