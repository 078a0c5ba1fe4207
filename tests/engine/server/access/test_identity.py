"""Whom an engine believes a request to be from, and that a body's ``user`` and ``priority`` decide nothing then."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from paternoster_contract.access.identity import HEADER, LANE_HEADER, MAX_HEADER, Identity, Lane
from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import digest_key
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.server.access.identity import TenantRules

BODY = {"prompt": [1] * 40, "max_tokens": 1}


def header(identity: Identity) -> dict[str, str]:
    return {HEADER: identity.encode()}


async def complete(server: Any, headers: Mapping[str, str] = {}, **fields: object) -> Any:
    return await server.client.post("/v1/completions", json=BODY | fields, headers=headers)


async def hits(server: Any) -> int:
    total: int = (await server.admin.get("/stats")).json()["cached_prompt_tokens_total"]
    return total


async def test_five_names_are_one_tenant(serve: Any) -> None:
    async with serve(tenants=TenantRules(believes_header=True), clock=lambda: 100.0) as server:
        slow, other = (header(Identity(tenant=name, max_queued=1)) for name in ("acme", "other"))
        named = (complete(server, slow, user=f"name-{i}") for i in range(5))
        answers = await server.submitted_at_once(complete(server, slow), *named, complete(server, other))
        assert [answer.status_code for answer in answers] == [200, 429, 429, 429, 429, 200]


async def test_a_rate_is_the_keys_and_not_the_names(serve: Any) -> None:
    now = [100.0]
    async with serve(tenants=TenantRules(believes_header=True), clock=lambda: now[0]) as server:
        slow = header(Identity(tenant="acme", tokens_per_second=2, token_burst=4))
        assert (await complete(server, slow, user="a")).status_code == 200
        now[0] += 0.25
        refused = [(await complete(server, slow, user=f"name-{i}")).status_code for i in range(5)]
        assert refused == [429] * 5
        assert (await complete(server, header(Identity(tenant="other")))).status_code == 200


async def test_each_of_several_keys_is_a_tenant_where_no_gateway_says_who_sends(serve: Any, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("noisy\nquiet\n")
    async with serve(max_queued_per_tenant=1, order="fair-share", keys=KeyFiles(file)) as server:
        noisy, quiet = ({"X-Api-Key": key} for key in ("noisy", "quiet"))
        named = (complete(server, noisy, user=f"name-{i}") for i in range(3))
        answers = await server.submitted_at_once(complete(server, noisy), *named, complete(server, quiet, user="noisy"))
        assert [answer.status_code for answer in answers] == [200, 429, 429, 200]
        assert f"tenant 'key-{digest_key('noisy')[:8]}'" in answers[1].json()["error"]["message"]
        assert (await complete(server, noisy)).status_code == 200
        assert await hits(server) > 0
        before = await hits(server)
        assert (await complete(server, quiet, prompt=[2] * 40)).status_code == 200
        assert (await complete(server, noisy, prompt=[2] * 40)).status_code == 200
        assert await hits(server) == before, "one key finds nothing of another's"


async def test_clients_without_keys_are_one_tenant_whatever_their_bodies_say(serve: Any) -> None:
    async with serve(max_queued_per_tenant=1, order="fair-share") as server:
        answers = await server.submitted_at_once(*(complete(server, user=f"name-{i}") for i in range(3)))
        assert [answer.status_code for answer in answers] == [200, 429]
        assert "all clients together" in answers[1].json()["error"]["message"]


async def test_a_plain_key_may_ask_for_the_classes_of_the_engine(serve: Any, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("key")
    rules = TenantRules(min_priority=-5, max_priority=5)
    async with serve(order="priority", tenants=rules, keys=KeyFiles(file)) as server:
        key = {"X-Api-Key": "key"}
        answers = [(await complete(server, key, priority=priority)).status_code for priority in (-6, -5, 5, 6)]
        assert answers == [400, 200, 200, 400]


@pytest.mark.parametrize("priority", [-1000, -1])
async def test_nobody_preempts_others_unless_the_engine_or_the_key_lets_them(serve: Any, priority: int) -> None:
    async with serve(order="priority", tenants=TenantRules(believes_header=True)) as server:
        refused = await complete(server, priority=priority)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "priority")
        assert f"0 to 1000 (got {priority})" in refused.json()["error"]["message"]
        assert (await complete(server, header(Identity(tenant="acme")), priority=priority)).status_code == 400
        urgent = header(Identity(tenant="acme", min_priority=-1000, max_priority=5))
        assert (await complete(server, urgent, priority=priority)).status_code == 200
        assert (await complete(server, urgent, priority=6)).status_code == 400
        assert (await complete(server, priority=6)).status_code == 200


async def test_the_engines_own_range_is_for_whoever_has_no_key(serve: Any) -> None:
    async with serve(order="priority", tenants=TenantRules(min_priority=-5, max_priority=5)) as server:
        assert [(await complete(server, priority=p)).status_code for p in (-6, -5, 5, 6)] == [400, 200, 200, 400]


async def test_the_header_is_nothing_where_anybody_may_send_it(serve: Any) -> None:
    async with serve(order="priority", tenant_tokens_per_second=1, clock=lambda: 100.0) as server:
        mine = header(Identity(tenant="acme", min_priority=-1000, tokens_per_second=0))
        assert (await complete(server, mine, priority=-1)).status_code == 400
        assert (await complete(server, {HEADER: "nonsense"})).status_code == 200


@pytest.mark.parametrize(
    "value",
    ["", "?", "e30=", "x" * (MAX_HEADER + 4), base64.urlsafe_b64encode(b'{"tenant": "a b"}').decode(),
     base64.urlsafe_b64encode(b'{"tenant": "a", "weight": NaN}').decode()],
)  # fmt: skip
async def test_what_is_no_identity_is_refused_and_never_somebody(serve: Any, value: str) -> None:
    async with serve(tenants=TenantRules(believes_header=True)) as server:
        refused = await complete(server, {HEADER: value})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, HEADER)
        assert len(refused.text) < 400
        twice = [(HEADER, Identity(tenant=each).encode()) for each in "ab"]
        assert (await server.client.post("/v1/completions", json=BODY, headers=twice)).status_code == 400


async def test_a_gateway_says_what_is_a_line_of_a_batch_and_no_client(serve: Any) -> None:
    async def count(server: Any) -> tuple[int, int]:
        stats = (await server.admin.get("/stats")).json()
        return stats["requests_finished_total"], stats["batch"]["requests_finished_total"]

    line = {LANE_HEADER: Lane.BATCH.encode()}
    async with serve() as server:
        assert (await complete(server, line, lane="batch")).status_code == 200
        assert await count(server) == (1, 0), "anybody may send the header"
    async with serve(tenants=TenantRules(believes_header=True)) as server:
        assert (await complete(server, lane="batch")).status_code == 200
        assert (await complete(server, line | header(Identity(tenant="acme")))).status_code == 200
        assert (await complete(server, line)).status_code == 200
        assert await count(server) == (1, 2)
        refused = await complete(server, {LANE_HEADER: "nightly"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, LANE_HEADER)
        assert "must be online or batch (got 'nightly')" in refused.json()["error"]["message"]
        text = (await server.admin.get("/metrics")).text
        assert 'paternoster_engine_batch_requests_finished_total{model_name="' in text
        stats = (await server.admin.get("/stats")).json()
        assert (stats["first_token_count_total"], stats["generation_tokens_total"]) == (1, 1)


async def test_another_tenants_prompt_is_not_there(serve: Any) -> None:
    async with serve(tenants=TenantRules(believes_header=True)) as server:
        for tenant in ("a", "b"):
            before = await hits(server)
            await complete(server, header(Identity(tenant=tenant)))
            assert await hits(server) == before, "the first prompt of a tenant finds nothing"
            await complete(server, header(Identity(tenant=tenant)), user="whoever")
            assert await hits(server) > before


async def test_a_fleet_that_trusts_its_tenants_shares_what_has_no_salt(serve: Any) -> None:
    async with serve(tenants=TenantRules(believes_header=True, isolates_cache=False)) as server:
        await complete(server, header(Identity(tenant="a")))
        await complete(server, header(Identity(tenant="b")))
        shared = await hits(server)
        assert shared > 0
        await complete(server, header(Identity(tenant="b")), cache_salt="own")
        assert await hits(server) == shared
        await complete(server, cache_salt="own")
        assert await hits(server) > shared


def test_an_engine_that_anybody_reaches_cannot_be_told_to_believe() -> None:
    with pytest.raises(ValueError, match="identity_header is True: must be False without api_keys"):
        EngineArgs(identity_header=True)
    with pytest.raises(ValueError, match="min_priority is 3: must be at most max_priority"):
        EngineArgs(min_priority=3, max_priority=2)


def test_an_identity_survives_the_hop() -> None:
    who = Identity(
        tenant="acme", weight=2.5, min_priority=-3, max_queued=0, max_running=3, tokens_per_second=1.5, token_burst=9
    )
    assert Identity.decode(who.encode()) == who
    most = 2**31 - 1
    longest = Identity(tenant="a" * 64, weight=1 / 3, min_priority=-1000, max_priority=-999, max_queued=most,
                       max_running=most, tokens_per_second=1e9 / 3, token_burst=1e12 / 3)  # fmt: skip
    assert len(longest.encode()) < MAX_HEADER / 2
