"""``paternoster doctor``: which part of the operators is the bottleneck, from their own metrics, and what to do."""

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from paternoster_contract.cli.terminal import print_error, print_json, print_line
from paternoster_operator.commands import resource

if TYPE_CHECKING:
    from paternoster_operator.cluster.kubeconfig import MetricsPage
    from paternoster_operator.terminal.bottleneck import Diagnosis, Reading

HELP = (
    "print which part of the operators is the bottleneck, and what to do about it; ends with 0 where none is, with 1 "
    "where some is, and with 2 where no operator can be read"
)
FOUND_STATUS, UNREAD_STATUS = 1, 2
INTERVAL_SECONDS = 5.0
"""Between the two samples: a scheduled look at each fleet."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("json",), help="the same as one JSON document")
    resource.add_source_arguments(parser, "the operators'")


def run(args: argparse.Namespace) -> int:
    from paternoster_operator.terminal.bottleneck import (
        describe_figures,
        describe_operators,
        diagnose,
        summarize_diagnosis,
    )

    try:
        before = resource.read_operators(args)
        time.sleep(INTERVAL_SECONDS)
        readings, unread = _pair_pages(before, resource.read_operators(args))
    except OSError as error:
        print_error(f"paternoster doctor: {error}")
        return UNREAD_STATUS
    if not readings:
        for name, why in unread.items():
            print_error(f"paternoster doctor: {name}: {why}")
        return UNREAD_STATUS
    diagnosis = diagnose(readings, unread)
    if args.output == "json":
        print_json(summarize_diagnosis(diagnosis), indent=2)
    else:
        print_line(f"operators: {describe_operators(diagnosis)}")
        if diagnosis.findings:
            _print_findings(diagnosis)
        else:
            print_line(describe_figures(diagnosis))
    return FOUND_STATUS if diagnosis.findings else 0


def _pair_pages(
    before: "Sequence[MetricsPage]", after: "Sequence[MetricsPage]"
) -> tuple[list["Reading"], dict[str, str]]:
    """Both samples of each operator that has two, and why others have not."""
    from paternoster_contract import labels
    from paternoster_contract.quantity import parse_quantity
    from paternoster_operator.terminal.bottleneck import OperatorSample, Reading

    readings, unread = list[Reading](), dict[str, str]()
    samples = {page.operator: page for page in before}
    for page in after:
        name, earlier = page.operator, samples.get(page.operator)
        if isinstance(page.answer, OSError):
            unread[name] = str(page.answer)
            continue
        if earlier is None or isinstance(earlier.answer, OSError):
            unread[name] = "it answered only the second time, as one that has just started"
            continue
        limits: Mapping[str, str] = {}
        shard = None
        if page.pod is not None:
            containers = page.pod["spec"]["containers"]
            operator = next((each for each in containers if each["name"] == "operator"), containers[0])
            limits = operator.get("resources", {}).get("limits", {})
            shard = page.pod["metadata"].get("labels", {}).get(labels.SHARD, "0")
        try:
            first = OperatorSample.parse(earlier.answer, earlier.at)
            last = OperatorSample.parse(page.answer, page.at)
            cpus, memory = (float(parse_quantity(limits[of])) if of in limits else None for of in ("cpu", "memory"))
        except ValueError as error:
            unread[name] = str(error)
            continue
        readings.append(Reading(name, first, last, shard, cpus, memory))
    return readings, unread


def _print_findings(diagnosis: "Diagnosis") -> None:
    """The bottleneck first; what is long is wrapped."""
    from rich.table import Table

    from paternoster_contract.cli.console import QuotingConsole

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for each in diagnosis.findings:
        table.add_row()
        for name, text in (
            (each.part, each.operator), ("seen", each.seen), ("means", each.means), ("do", each.remedy),
        ):  # fmt: skip
            table.add_row(name, text)
    QuotingConsole().print(table)
