"""A routing table as one moment has it: rows, those that could not be built, and what of it fits. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_contract.routing_rows import End, Row
from paternoster_operator.cluster.port import Key
from paternoster_operator.routes.share import Sized, rows_beyond_share


@dataclass(frozen=True)
class PublishedRow:
    """One served model's route, and the line that gateways read."""

    name: str
    fleet: Key
    route: ModelRoute = field(repr=False)
    created: str = ""
    """When its LLMDeployment was made, in RFC 3339."""

    @property
    def names(self) -> tuple[str, ...]:
        """All that clients may use."""
        return self.name, *self.route.aliases

    @cached_property
    def line(self) -> bytes:
        return Row(name=self.name, route=self.route).encode()

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.line).digest()


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """All rows as of one moment."""

    rows: Sequence[PublishedRow] = ()
    unread: Sequence[str] = ()
    """Served names whose row could not be built, in order."""
    left_out: Mapping[Key, int] = field(default_factory=dict)
    """Fleets whose row does not fit, with the bytes that their namespace has."""

    def fit_rows(self, capacity: int) -> "PublishedTable":
        """The rows that fit into ``capacity`` bytes, shared out by namespace."""
        if sum(len(row.line) for row in self.rows) <= capacity:
            return self  # without sorting: gateways read the table twice a second
        sized = [Sized(row.name, row.fleet.namespace, len(row.line), row.created) for row in self.rows]
        beyond = rows_beyond_share(sized, capacity)
        left_out = {row.fleet: beyond[row.name] for row in self.rows if row.name in beyond}
        return PublishedTable([row for row in self.rows if row.name not in beyond], self.unread, left_out)

    @property
    def table(self) -> RoutingTable:
        return RoutingTable(models={row.name: row.route for row in self.rows}, unread=list(self.unread))

    @property
    def lines(self) -> bytes:
        """All rows and the last line, as :mod:`paternoster_contract.routing_rows` has them."""
        return b"".join([row.line for row in self.rows]) + self._end

    @property
    def etag(self) -> str:
        """Changes with any of :attr:`lines`."""
        made = hashlib.sha256(self._end)
        for row in self.rows:
            made.update(row.digest)
        return f'"{made.hexdigest()}"'

    @property
    def _end(self) -> bytes:
        return End(rows=len(self.rows), unread=list(self.unread)).encode()
