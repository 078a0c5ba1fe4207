"""Which replica gets a request: pure."""

from collections.abc import Collection, Mapping, Sequence

from paternoster_contract.routing import Replica


def pick(
    replicas: Sequence[Replica],
    in_flight: Mapping[str, int],
    *,
    avoid: Collection[str] = (),
    turn: int = 0,
) -> Replica | None:
    """The ready replica with the fewest requests in flight; None when there is none outside ``avoid``.

    ``in_flight`` counts by replica name. Equals take turns: ``turn`` is any number that grows.
    """
    candidates = [replica for replica in replicas if replica.ready and replica.name not in avoid]
    if not candidates:
        return None
    fewest = min(in_flight.get(replica.name, 0) for replica in candidates)
    least = [replica for replica in candidates if in_flight.get(replica.name, 0) == fewest]
    return least[turn % len(least)]
