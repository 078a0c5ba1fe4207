"""For whom the rows of a step are sampled."""

from collections.abc import Sequence

from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.matching import ProposedRow
from paternoster_engine.core.request import Request


def sampled_rows(order: Sequence[ScheduledRequest]) -> tuple[list[Request | ProposedRow], list[Request]]:
    """The rows that sample, in the order of :func:`host_step`, and the request of each.

    A request comes first, then itself as it is after each token that is proposed for it.
    """
    rows: list[Request | ProposedRow] = []
    owners = []
    for item in order:
        if not item.samples:
            continue
        request = item.request
        rows.append(request)
        rows += [ProposedRow(request, item.proposed[:count]) for count in range(1, len(item.proposed) + 1)]
        owners += [request] * (1 + len(item.proposed))
    return rows, owners
