"""The peers as entry points: found by name, named settings, honest search spaces, bounds from the spec."""

from dataclasses import fields
from importlib.metadata import entry_points

import pytest
from small_profile import SMALL

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_peers.peer import Peer
from paternoster_simulator.policy import Policy

PEERS = ("kubeai", "aibrix-apa", "aibrix-kpa", "production-stack", "wva", "dynamo", "ray-serve")


def spec(**autoscaling: int) -> LLMDeploymentSpec:
    document = {"model": {"source": "package://m"}}
    return LLMDeploymentSpec.model_validate({**document, "autoscaling": autoscaling} if autoscaling else document)


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest) -> Peer:
    (entry,) = entry_points(group="paternoster.policies", name=request.param)
    return entry.load()


def test_its_name_is_the_entry_points(peer) -> None:
    assert peer.name in PEERS


def test_the_search_tries_settings_and_their_defaults(peer) -> None:
    defaults = {field.name: getattr(peer.settings(), field.name) for field in fields(peer.settings)}
    assert peer.search_space.keys() <= defaults.keys()
    for name, values in peer.search_space.items():
        assert defaults[name] in values, name
        assert len(set(values)) == len(values) > 1, name


def test_every_value_of_the_search_makes_a_policy(peer) -> None:
    for name, values in peer.search_space.items():
        for value in values:
            policy: Policy = peer(spec(minReplicas=1, maxReplicas=3), SMALL, **{name: value})
            assert policy.period_seconds > 0


def test_bounds_come_from_the_spec(peer, observe, stats) -> None:
    policy = peer(spec(minReplicas=2, maxReplicas=3), SMALL)
    busy = stats(running=64, waiting=500, kv_blocks_used=990)
    replicas, asked, now = 2, set(), 0.0
    while now <= 1500:
        engine = busy if now < 600 else stats()
        actions = policy.decide(observe(now, [engine] * replicas, in_flight=1100 if now < 600 else 0))
        assert actions.cap is None
        replicas = actions.replicas
        asked.add(replicas)
        now += policy.period_seconds
    assert asked <= {2, 3}


def test_an_unknown_setting_is_named(peer) -> None:
    with pytest.raises(ValueError, match="'speed' is no setting of"):
        peer(spec(minReplicas=1, maxReplicas=3), SMALL, speed=1)


def test_a_fleet_without_autoscaling_is_refused(peer) -> None:
    with pytest.raises(ValueError, match=r"autoscaling\.minReplicas"):
        peer(spec(), SMALL)
