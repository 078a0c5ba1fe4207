"""How a benchmark ends: its exit code, and what was wrong with its flags, a line each."""

import sys
from collections.abc import Callable

from pydantic import ValidationError

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
        print(f"{command}: {line}", file=sys.stderr)
    return 2
