"""How a benchmark ends: its exit code, and what was wrong with its flags, a line each."""

from collections.abc import Callable

from pydantic import ValidationError

from paternoster_contract.cli.terminal import print_error
from paternoster_contract.flags import flag_errors


def finish_command(command: str, session: Callable[[], int]) -> int:
    """The exit code of ``session``; 2 after a ``ValueError``, which is printed on the error stream."""
    try:
        return session()
    except ValidationError as error:
        lines = flag_errors(error)
    except ValueError as error:
        lines = str(error).splitlines()
    for line in lines:
        print_error(f"{command}: {line}")
    return 2
