"""A number of places shared out by namespace as they are claimed: who has most gives way to who has less. Pure."""

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedPlaces(Generic[T]):
    """While there is room each item has a place; then the namespace that has most loses its last one to one with less.

    So each namespace has the places that it claims, or one less than an equal share of all at the least. Each claim
    takes the same time, however many places there are.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._namespaces: dict[T, str] = {}
        self._items: dict[str, dict[T, None]] = {}
        """Items by namespace, in the order in which they came."""
        self._by_count: dict[int, dict[str, None]] = {}
        """Namespaces by the number of their places."""
        self._most = 0
        """Places of the namespace that has most."""

    def __contains__(self, item: T) -> bool:
        return item in self._namespaces

    def __iter__(self) -> Iterator[T]:
        return iter(self._namespaces)

    def __len__(self) -> int:
        return len(self._namespaces)

    def claim_place(self, item: T, namespace: str) -> tuple[bool, T | None]:
        """Whether ``item`` has a place now, and the item that lost its own for it."""
        if item in self._namespaces:
            return True, None
        evicted = None
        if len(self._namespaces) >= self._capacity:
            if self.count(namespace) + 1 >= self._most:
                return False, None
            largest = next(iter(self._by_count[self._most]))
            evicted = next(reversed(self._items[largest]))
            self.release(evicted)
        self._add_item(item, namespace)
        return True, evicted

    def take_place(self, item: T, namespace: str) -> T | None:
        """Give ``item`` a place, as the last of its namespace; returns the item that lost its own for it.

        Where there is no room, that is the first of ``namespace``, or of the one that has most where that has more than
        one more: what is used again takes its place anew, so the first is the one that was used least lately.
        """
        self.release(item)
        evicted = None
        if len(self._namespaces) >= self._capacity:
            own = self.count(namespace)
            largest = namespace if own and own + 1 >= self._most else next(iter(self._by_count[self._most]))
            evicted = next(iter(self._items[largest]))
            self.release(evicted)
        self._add_item(item, namespace)
        return evicted

    def count(self, namespace: str) -> int:
        """Places of ``namespace``."""
        return len(self._items.get(namespace, ()))

    def count_beside(self, item: T) -> int:
        """Places of the namespace of ``item``, which has one."""
        return len(self._items[self._namespaces[item]])

    def share_amount(self, amount: int, most: int) -> int:
        """The largest share of ``amount`` for each namespace whose items want ``most`` each: max-min fair."""
        left, namespaces = amount, len(self._items)
        for places, others in sorted(self._by_count.items()):
            if places * most * namespaces > left:
                return left // namespaces
            left -= places * most * len(others)
            namespaces -= len(others)
        return amount

    def release(self, item: T) -> None:
        """Give up the place of ``item``, if it has one."""
        namespace = self._namespaces.pop(item, None)
        if namespace is None:
            return
        items = self._items[namespace]
        del items[item]
        if not items:
            del self._items[namespace]
        self._move_namespace(namespace, len(items) + 1, len(items))

    def clear(self) -> None:
        """Give up all places."""
        self._namespaces.clear()
        self._items.clear()
        self._by_count.clear()
        self._most = 0

    def _add_item(self, item: T, namespace: str) -> None:
        self._namespaces[item] = namespace
        items = self._items.setdefault(namespace, {})
        items[item] = None
        self._move_namespace(namespace, len(items) - 1, len(items))

    def _move_namespace(self, namespace: str, before: int, after: int) -> None:
        """The namespace has ``after`` places, one more or one less than ``before``."""
        if before:
            others = self._by_count[before]
            del others[namespace]
            if not others:
                del self._by_count[before]
        if after:
            self._by_count.setdefault(after, {})[namespace] = None
        self._most = (
            after if after > self._most or (before == self._most and before not in self._by_count) else self._most
        )
