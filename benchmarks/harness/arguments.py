"""A runner's flags: its docstring as the help, numbers with bounds, names of a list, and a file for the results."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


class RunnerParser(argparse.ArgumentParser):
    """A parser whose numbers are refused out of bounds, with the flag, the value and what is allowed."""

    def __init__(self, description: str | None, json: str = "") -> None:
        """``json``: help of ``--json FILE``; empty for a runner that writes no results."""
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        if json:
            self.add_argument("--json", type=Path, metavar="FILE", help=json)

    def add_number(
        self,
        flag: str,
        default: float | Sequence[float] | None,
        what: str = "",
        least: float | None = None,
        most: float | None = None,
        may_be_empty: bool = False,
    ) -> None:
        """A whole number or a fraction, as the default is, or several; without a default a whole one.

        The least is 1 for whole numbers and 0 for fractions, where nothing else is given.
        """
        several = isinstance(default, Sequence)
        values = default if isinstance(default, Sequence) else [] if default is None else [default]
        kind = float if any(isinstance(value, float) for value in values) else int
        least = (1 if kind is int else 0) if least is None else least
        shown = " ".join(f"{value:g}" for value in values)
        text = f"{what} (default: {shown})" if shown else what
        self.add_argument(
            flag, type=_bounded(kind, least, most), default=default,
            nargs=("*" if may_be_empty else "+") if several else None, metavar="N" if kind is int else "X",
            help=text.strip(),
        )  # fmt: skip

    def add_names(self, flag: str, names: Iterable[str], default: Sequence[str] | None = None, what: str = "") -> None:
        """Some of ``names``; all of them where the flag is not given and has no other default."""
        listed = list(names)
        shown = f"{what}: {', '.join(listed)}" if what else ", ".join(listed)
        self.add_argument(
            flag, nargs="+", choices=listed, metavar="NAME", help=shown,
            default=listed if default is None else list(default),
        )  # fmt: skip


def _bounded(kind: type[float], least: float, most: float | None) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"is {text!r}: must be a number") from None
        if not (value >= least and (most is None or value <= most)):
            raise argparse.ArgumentTypeError(
                f"is {text}: must be " + (f"at least {least:g}" if most is None else f"{least:g} to {most:g}")
            )
        return value

    return parse
