"""The ``paternoster`` command: from its first instruction on it ends on SIGTERM, wherever it runs.

The kernel gives the first process of a PID namespace, which a container's is, no default action for signals: one that
comes before there is a handler is lost, and its sender waits until it kills the process. So the handler comes before
all that takes time to import; a subcommand that ends in an orderly way puts its own in its place.
"""

import os
import signal
import sys
from collections.abc import Sequence

FIRST_PID = 1
"""PID of the first process of a PID namespace."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code, as :func:`paternoster_contract.cli.subcommands.run` gives it."""
    # Any other process has the kernel's own action, which no long call can put off.
    if os.getpid() == FIRST_PID:
        signal.signal(signal.SIGTERM, _exit_on_signal)
    from paternoster_contract.cli import subcommands

    return subcommands.run(sys.argv[1:] if argv is None else argv)


def _exit_on_signal(number: int, _frame: object) -> None:
    """With the status of a process that the signal ended: not 0, as nothing that was asked for is done.

    A Job would take 0 for success. At once, for there is nothing yet that would have to be put in order.
    """
    os._exit(128 + number)
