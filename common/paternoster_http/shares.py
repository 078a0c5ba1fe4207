"""How a total is shared out by party, such as a fleet's tenant: who may have more, and who gives way. Pure."""

from collections.abc import Iterator
from heapq import nlargest

Party = tuple[str, ...]
"""From the largest group to the smallest one, such as (fleet, tenant): each prefix is a group with a share."""

RESERVE = 16
"""The reserve is the total over this number; it stays free for groups that hold less."""
MOST_COMPARED = 4
"""Largest groups of a level that :meth:`Shares.find_larger` looks at."""


class Shares:
    """What each party holds of ``total``, in whatever unit; the part that others must leave free is ``reserve``.

    **Admission.** What a party takes must leave free as much as the party holds then, up to the reserve, and the same
    again for each group that the party is in. So a party alone has the total but for one reserve a level, and one that
    holds nothing gets its part of what is free at once: these are the dynamic thresholds of switches with shared memory
    (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998), with a bounded reserve.

    **Giving way.** What is held by larger parties can be taken from them (:meth:`find_larger`), while they are left
    with no less than the one that it goes to (:meth:`gives_way`): max-min fairness, first between the largest groups.
    """

    def __init__(self, total: int, reserve: int | None = None) -> None:
        """``reserve``: one of :data:`RESERVE` parts of ``total`` by default."""
        self.total = total
        self.reserve = total // RESERVE if reserve is None else reserve
        self._held: dict[Party, int] = {(): 0}
        """Amount that each group holds, and all together."""
        self._members: dict[Party, dict[str, None]] = {}
        """Last names of the members of each group that hold something."""

    def held_by(self, group: Party = ()) -> int:
        """What a party or a group of parties holds; all of them by default."""
        return self._held.get(group, 0)

    def has_room(self, party: Party, amount: int) -> bool:
        """Whether ``party`` may take ``amount`` of what is free."""
        free = self.total - self.held_by() - amount
        return free >= sum(min(self.reserve, self.held_by(group) + amount) for group in _list_groups(party))

    def add(self, party: Party, amount: int) -> None:
        """``party`` holds ``amount`` more, whether that is admitted or not."""
        self._change_held(party, amount)

    def remove(self, party: Party, amount: int) -> None:
        """``party`` holds ``amount`` less."""
        self._change_held(party, -amount)

    def find_larger(self, party: Party) -> Iterator[Party]:
        """Parties that may have to give way to ``party``: those of the largest groups first, then of its own group."""
        for level in range(len(party)):
            own = self.held_by(party[: level + 1])
            for group in self._find_largest(party[:level]):
                if self.held_by(group) <= own:
                    break
                if group != party[: level + 1]:
                    yield from self._list_parties(group, len(party))

    def gives_way(self, holder: Party, party: Party, given: int, wanted: int) -> bool:
        """Whether ``holder`` has as much as ``party`` once it has given up ``given`` and ``party`` has ``wanted`` more.

        Counted for the largest groups in which the two differ.
        """
        level = next((n for n, (one, other) in enumerate(zip(holder, party, strict=False), 1) if one != other), 0)
        return level > 0 and self.held_by(holder[:level]) - given >= self.held_by(party[:level]) + wanted

    def _find_largest(self, group: Party) -> list[Party]:
        members = ((*group, name) for name in self._members.get(group, ()))
        return nlargest(MOST_COMPARED, members, key=self.held_by)

    def _list_parties(self, group: Party, levels: int) -> Iterator[Party]:
        if len(group) == levels:
            yield group
            return
        for member in self._find_largest(group):
            yield from self._list_parties(member, levels)

    def _change_held(self, party: Party, amount: int) -> None:
        self._held[()] += amount
        for group in _list_groups(party):
            now = self.held_by(group) + amount
            if now:
                self._held[group] = now
                self._members.setdefault(group[:-1], {})[group[-1]] = None
            else:
                self._remove_group(group)

    def _remove_group(self, group: Party) -> None:
        self._held.pop(group, None)
        members = self._members.get(group[:-1], {})
        members.pop(group[-1], None)
        if not members:
            self._members.pop(group[:-1], None)


def _list_groups(party: Party) -> list[Party]:
    """The groups that ``party`` is in, itself included."""
    return [party[: level + 1] for level in range(len(party))]
