"""Policies by name, those of other packages too; the peers' settings, search spaces and bounds."""

from dataclasses import fields
from pathlib import Path

import pytest
from tests.simulator.small_profile import SMALL

from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_simulator.policies.fixed import FixedPolicy
from paternoster_simulator.policies.law import LawPolicy
from paternoster_simulator.policies.policy import Policy
from paternoster_simulator.policies.registry import make_policy, policy_names
from peer_policies.all_peers import PEERS
from peer_policies.peer import Peer


def spec(**autoscaling: int) -> LLMDeploymentSpec:
    document = {"model": {"source": "package://m"}}
    return LLMDeploymentSpec.model_validate({**document, "autoscaling": autoscaling} if autoscaling else document)


@pytest.fixture(params=PEERS, ids=lambda peer: peer.name)
def peer(request: pytest.FixtureRequest) -> Peer:
    return request.param


def test_ours_and_the_peers_come_by_name() -> None:
    peers = {"kubeai", "aibrix-apa", "aibrix-kpa", "production-stack", "wva", "dynamo", "ray-serve"}
    assert {"paternoster", *peers} <= set(policy_names())
    whole = spec(minReplicas=1, maxReplicas=3)
    made = {type(make_policy(name, whole, SMALL)) for name in ("paternoster", *peers)}
    assert LawPolicy in made
    assert len(made) > 5


def test_another_package_adds_a_policy_and_replaces_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "steady_fleet.py").write_text(
        "from paternoster_simulator.policies.fixed import FixedPolicy\n"
        "def make(spec, profile): return FixedPolicy(spec.autoscaling.max_replicas)\n"
    )
    metadata = tmp_path / "steady_fleet-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: steady-fleet\nVersion: 1.0\n")
    names = "".join(f"{name} = steady_fleet:make\n" for name in ("steady", "paternoster"))
    (metadata / "entry_points.txt").write_text(f"[paternoster.policies]\n{names}")
    monkeypatch.syspath_prepend(str(tmp_path))
    whole = spec(minReplicas=1, maxReplicas=3)
    assert "steady" in policy_names()
    assert isinstance(make_policy("steady", whole, SMALL), FixedPolicy)
    assert isinstance(make_policy("paternoster", whole, SMALL), LawPolicy)


def test_a_policy_whose_package_is_not_installed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "bare_install-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bare-install\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[paternoster.policies]\nabsent = absent_policies.absent:ABSENT\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=r"policy is 'absent': the package 'absent_policies' is not installed"):
        make_policy("absent", spec(), SMALL)


def test_a_fixed_fleet_has_the_fewest_replicas_of_its_manifest(observe) -> None:
    for whole, replicas in ((spec(minReplicas=2, maxReplicas=3), 2), (spec(), 1)):
        assert make_policy("fixed", whole, SMALL).decide(observe(0.0, [])).replicas == replicas
    asleep = spec(minReplicas=0, maxReplicas=3)
    with pytest.raises(ValueError, match="replicas is 0: must be at least 1"):
        make_policy("fixed", asleep, SMALL)


def test_an_unknown_name_is_an_error_that_lists_the_names() -> None:
    with pytest.raises(ValueError, match=r"policy is 'magic': must be one of aibrix-apa, .*, wva"):
        make_policy("magic", spec(), SMALL)


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
    replicas, desired, now = 2, set(), 0.0
    while now <= 1500:
        engine = busy if now < 600 else stats()
        actions = policy.decide(observe(now, [engine] * replicas, in_flight=1100 if now < 600 else 0))
        assert actions.cap is None
        replicas = actions.replicas
        desired.add(replicas)
        now += policy.period_seconds
    assert desired <= {2, 3}


def test_an_unknown_setting_is_named(peer) -> None:
    with pytest.raises(ValueError, match="'speed' is no setting of"):
        peer(spec(minReplicas=1, maxReplicas=3), SMALL, speed=1)


def test_a_fleet_without_autoscaling_is_refused(peer) -> None:
    with pytest.raises(ValueError, match=r"autoscaling\.minReplicas"):
        peer(spec(), SMALL)
