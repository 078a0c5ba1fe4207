"""Who is compared: the law, the law with a loop taken out, a fleet that no policy steers, and every peer."""

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING, Tuning
from paternoster_simulator.policies.fixed import FixedPolicy
from paternoster_simulator.policies.law import LawPolicy
from paternoster_simulator.policies.policy import Policy
from paternoster_simulator.policies.registry import OURS
from paternoster_simulator.profile import Profile
from peer_policies.all_peers import PEERS
from peer_policies.bounds import Bounds
from peer_policies.peer import Peer

Document = Mapping[str, Any]
"""An ``LLMDeployment`` spec as in a manifest."""
Choice = Mapping[str, Any]
"""Setting -> value; what is not named keeps its default."""
LAW_SPACE: Mapping[str, Sequence[Any]] = {
    "autoscaling.targetUtilizationPercent": (50, 60, 70, 80, 90, 100),
    "autoscaling.scaleDown.stabilizationWindowSeconds": (None, 60, 120, 300, 600),
}
"""Manifest paths that a user would turn first: how full replicas are planned, and how long needed ones are kept."""
CAPS = (32, 64, 96, 128, 192, 256)
"""Live caps that a fixed fleet is tried with, as far as the engines have the capacity."""

LAW_SOURCES = ("paternoster_operator.autoscaling", "paternoster_operator.api", "paternoster_simulator.policies.law")


@dataclass(frozen=True)
class Contender:
    """A way to steer a fleet and what a search may try of it."""

    name: str
    search_space: Callable[[Document, Profile], Mapping[str, Sequence[Any]]]
    policy: Callable[[Document, Profile, Choice], Policy]
    sources: tuple[str, ...]
    """Packages and modules whose text decides what it does."""
    in_hindsight: bool = False
    """Searched on the very traffic it is judged by: a bound, and no contender that could be run."""

    def choices(self, document: Document, profile: Profile, budget: int, seed: int = 0) -> list[Choice]:
        """The defaults and ``budget`` - 1 other settings at random, or all there are when that is no more."""
        space = self.search_space(document, profile)
        grid: list[Choice] = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
        if self.in_hindsight or len(grid) <= budget:
            return grid
        return [{}, *random.Random(f"{self.name}-{seed}").sample(grid, budget - 1)]


def with_settings(document: Document, choice: Choice) -> LLMDeploymentSpec:
    """The spec with values put at dotted paths, such as ``autoscaling.maxReplicas``; None leaves the default."""
    changed = deepcopy(dict(document))
    for path, value in choice.items():
        *parents, leaf = path.split(".")
        part: dict[str, Any] = changed
        for name in parents:
            part = part.setdefault(name, {})
        if value is not None:
            part[leaf] = value
    return LLMDeploymentSpec.model_validate(changed)


def law(tuning: Tuning = DEFAULT_TUNING) -> Contender:
    """Ours, with constants that an experiment may change."""

    def steered(document: Document, profile: Profile, choice: Choice) -> Policy:
        return LawPolicy.from_spec(with_settings(document, choice), profile, tuning)

    return Contender(OURS, lambda d, p: LAW_SPACE, steered, LAW_SOURCES)


@cache
def contenders() -> dict[str, Contender]:
    """All there are, by name: ours and its ablations first, then the peers."""
    ours = law()

    def caps(profile: Profile) -> list[int]:
        return [cap for cap in CAPS if cap <= profile.max_num_seqs]

    def sizes(document: Document) -> range:
        bounds = Bounds.of(LLMDeploymentSpec.model_validate(document))
        return range(max(bounds.minimum, 1), bounds.maximum + 1)

    def without_autoscaling(document: Document, profile: Profile, choice: Choice) -> Policy:
        fixed = {name: part for name, part in document.items() if name != "autoscaling"}
        return ours.policy(fixed, profile, choice)

    def without_cap_loop(document: Document, profile: Profile, choice: Choice) -> Policy:
        return ours.policy({**document, "concurrency": {"mode": "Fixed"}}, profile, choice)

    own_contenders = [
        ours,
        Contender("without-cap-loop", lambda d, p: LAW_SPACE, without_cap_loop, LAW_SOURCES),
        Contender(
            "without-replica-loop",
            lambda d, p: {"replicas": sizes(d)},
            without_autoscaling,
            LAW_SOURCES,
            in_hindsight=True,
        ),
        Contender(
            "fixed-in-hindsight",
            lambda d, p: {"replicas": sizes(d), "cap": caps(p)},
            lambda d, p, choice: FixedPolicy(**choice),
            ("paternoster_simulator.policies.fixed",),
            in_hindsight=True,
        ),
    ]
    return {contender.name: contender for contender in (*own_contenders, *map(_peer, PEERS))}


def _peer(peer: Peer[Any]) -> Contender:
    def policy(document: Document, profile: Profile, choice: Choice) -> Policy:
        return peer(LLMDeploymentSpec.model_validate(document), profile, **choice)

    return Contender(peer.name, lambda d, p: peer.search_space, policy, ("peer_policies",))
