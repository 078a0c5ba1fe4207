"""A routing table as one moment has it: rows, those that could not be built, and what of it fits. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from paternoster_contract.routing import ModelRoute, RoutingTable
from paternoster_contract.routing_rows import End, Row
from paternoster_contract.shares.rows import Sized, rows_beyond_share
from paternoster_operator.cluster.port import Key


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
        return self.name, *self.route.names

    def is_of(self, unread: "UnreadRow") -> bool:
        """Whether it can be a row that the fleet of ``unread`` had: a fleet that is gone may have had the name."""
        return self.names == tuple(unread.names) and self.fleet.namespace == unread.fleet.namespace

    @cached_property
    def line(self) -> bytes:
        return Row(name=self.name, route=self.route).encode()

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.line).digest()


@dataclass(frozen=True, slots=True)
class UnreadRow:
    """The names of a fleet whose row could not be built: gateways keep the row that they have."""

    names: Sequence[str]
    fleet: Key
    created: str = ""

    @property
    def size(self) -> int:
        """Bytes at most of its names in the last line."""
        return sum(len(json.dumps(name)) + 1 for name in self.names)


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """All rows as of one moment."""

    rows: Sequence[PublishedRow] = ()
    unread: Sequence[UnreadRow] = ()
    """Rows that could not be built."""
    left_out: Mapping[Key, int] = field(default_factory=dict)
    """Fleets whose row does not fit, with the bytes that their namespace has."""
    names_left_out: Sequence[str] = ()
    """First served names of these, where the reader needs them."""

    def for_shards(self, capacity: int) -> "PublishedTable":
        """For an operator of another shard, to which a row that does not fit must not be an unread one."""
        fitting = self.fit_rows(capacity)
        return replace(fitting, names_left_out=[row.name for row in self.rows if row.fleet in fitting.left_out])

    def fit_rows(self, capacity: int) -> "PublishedTable":
        """The rows, and names of unread ones, that fit into ``capacity`` bytes, shared out by namespace."""
        if self.size + sum(row.size for row in self.unread) <= capacity:
            return self  # without sorting: gateways read the table twice a second
        sized = [Sized(str(row.fleet), row.fleet.namespace, len(row.line), row.created) for row in self.rows]
        sized += [Sized(str(row.fleet), row.fleet.namespace, row.size, row.created) for row in self.unread]
        beyond = rows_beyond_share(sized, capacity)
        fleets = (*(row.fleet for row in self.rows), *(row.fleet for row in self.unread))
        left_out = {fleet: beyond[name] for fleet in fleets if (name := str(fleet)) in beyond}
        return PublishedTable(
            [row for row in self.rows if row.fleet not in left_out],
            [row for row in self.unread if row.fleet not in left_out],
            left_out,
        )

    @property
    def unread_names(self) -> list[str]:
        """Served names whose row could not be built, in order."""
        return sorted(name for row in self.unread for name in row.names)

    @property
    def table(self) -> RoutingTable:
        return RoutingTable(models={row.name: row.route for row in self.rows}, unread=self.unread_names)

    @property
    def size(self) -> int:
        """Bytes of its rows."""
        return sum(len(row.line) for row in self.rows)

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
        return End(rows=len(self.rows), unread=self.unread_names, left_out=[*self.names_left_out]).encode()
