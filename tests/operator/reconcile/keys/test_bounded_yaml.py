"""Key lists that would hold the operator up: refused in bounded steps, beside the event loop."""

import asyncio
import threading
from collections.abc import Callable

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.operator.reconcile.world import FakeCluster

from paternoster_contract.access.keys import digest_key
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.cluster.port import Key
from paternoster_operator.keys import key_secrets
from paternoster_operator.keys.bounded_yaml import MAX_DEPTH, MAX_NODES, load_bounded_yaml
from paternoster_operator.keys.client_keys import LONGEST_LIST, MAX_KEYS, KeyList, read_key_list
from paternoster_operator.keys.fleet_keys import FleetKeys
from paternoster_operator.keys.key_secrets import KEPT_SECONDS, REREAD_SECONDS, KeySecrets
from paternoster_operator.settings import Settings

MERGE_BOMB = "a0: &a0 {k: v}\n" + "\n".join(
    f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}]}}" for i in range(1, 14)
)
ALIAS_BOMB = "- &a [x]\n" + "\n".join(f"- &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]" for i in range(12))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (MERGE_BOMB, "an anchor or an alias"),
        (ALIAS_BOMB, "an anchor or an alias"),
        ("- {<<: {name: a}, sha256: b}", "a merge key"),
        ("- &key {name: a}", "an anchor or an alias"),
        ("[" * LONGEST_LIST, "nested deeper than 8 levels"),
        ("- " * (LONGEST_LIST // 2), "nested deeper than 8 levels"),
        ("[" + "a," * (LONGEST_LIST // 2 - 1) + "]", f"more than {MAX_NODES} nodes"),
        ("- " + "1:" * 600 + "1", "longer than 512 characters"),
        ("- " + "9" * 5000, "longer than 512 characters"),
        ("- name: a\n- ]\n", "it is no YAML, at line 2"),
    ],
)
def test_a_text_beyond_a_bound_is_refused_with_its_line(text: str, reason: str) -> None:
    found = read_key_list(text)
    assert not found.identities
    (fault,) = found.faults
    assert reason in fault


def test_a_list_of_too_many_entries_is_refused_whole() -> None:
    (fault,) = read_key_list("- a\n" * (MAX_KEYS + 1)).faults
    assert fault == "it has 257 entries, more than the 256 that a fleet may have"


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(plain)
def test_what_is_within_the_bounds_is_loaded_as_by_the_safe_loader(value: object) -> None:
    text = yaml.safe_dump(value)
    assume(depth(value) <= MAX_DEPTH and not set("<&*") & set(text))
    assert load_bounded_yaml(text) == yaml.safe_load(text)


async def test_a_list_is_read_once_a_change_in_a_worker_thread(
    resource: Callable[..., LLMDeployment], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def read(text: str) -> KeyList:
        threads.append(threading.current_thread())
        return read_key_list(text)

    monkeypatch.setattr(key_secrets, "read_key_list", read)
    now = 0.0
    cluster = FakeCluster()
    cluster.secrets[Key("lifts", "one")] = {"key": f"- {{name: a, sha256: {digest_key('a')}}}", "other": "x" * 2**20}
    held = KeySecrets(cluster, lambda: now)
    fleet_keys = FleetKeys(held, Settings())
    fleet = resource(security={"apiKeys": [{"name": "one"}]})
    for _ in range(5):
        assert (await fleet_keys.client_keys(fleet)).digests == [digest_key("a")]
        now += REREAD_SECONDS
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
    cluster.secrets[Key("lifts", "one")]["key"] = MERGE_BOMB
    assert (await asyncio.wait_for(fleet_keys.client_keys(fleet), 30)).digests == []
    assert len(threads) == 2
    now += KEPT_SECONDS + 1
    await held.read_keys(Key("lifts", "two"), "key")
    assert [secret.name for secret, _, _ in held._entries] == ["two"], "a list that no fleet asks for is dropped"
