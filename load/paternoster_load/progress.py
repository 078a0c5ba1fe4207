"""How far a benchmark is, on the error stream."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from paternoster_contract.cli.console import QuotingConsole
from paternoster_load.results import RequestEnd, RequestResult


@contextmanager
def show_progress(title: str, total: int | None, *, quiet: bool) -> Iterator[Callable[[RequestResult], None]]:
    """A bar that counts answers, and those that were none."""
    columns = (
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        "{task.fields[failed]} failed",
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=QuotingConsole(stderr=True), disable=quiet) as bar:
        task = bar.add_task(title, total=total, failed=0)
        failed = 0

        def on_result(result: RequestResult) -> None:
            nonlocal failed
            failed += result.outcome is not RequestEnd.COMPLETED
            bar.update(task, advance=1, failed=failed)

        yield on_result
