"""Adapters of a manifest: loaded into each engine, routed to where they are, reported, and owned by one fleet."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.operator.names.test_claims_of_fleets import Fleets
from tests.operator.reconcile.world import KEY, World

from paternoster_contract.access.keys import digest_key
from paternoster_contract.http import paths
from paternoster_contract.labels import LORA_ADAPTERS
from paternoster_contract.limits import MAX_ADAPTERS, MAX_ALIASES
from paternoster_contract.routing import ModelRoute
from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.api.types.adapter import ModelAdapter
from paternoster_operator.cluster.port import Key
from paternoster_operator.desired.children import RootKeys, build_children
from paternoster_operator.plan.lora_adapters import RETRY_SECONDS
from paternoster_operator.plan.plan import WAITING_SECONDS
from paternoster_operator.pods.reading import read_pod
from paternoster_operator.runtime import Operator
from paternoster_operator.settings import Settings

Document = Callable[..., dict[str, Any]]
ENGINE = {"memory": {"maxAdapterMemory": "64Mi"}}
SQL = {"name": "sql", "source": "hf://org/sql"}
CHAT = {"name": "chat", "source": "s3://bucket/chat", "digest": f"sha256:{'1' * 64}"}


def version(adapter: dict[str, Any]) -> str:
    return ModelAdapter(**adapter).version


def report(adapter: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": adapter["name"], "version": version(adapter), "ready": True, **fields}


class Adapted(World):
    """A world whose one engine reports adapters."""

    def show(self, document: dict[str, Any], *reports: dict[str, Any]) -> None:
        before = {} if self.cluster.resource is None else self.cluster.resource.get("status", {})
        self.cluster.resource = {**document, "status": before}
        self.engine.numbers["adapters"] = list(reports)

    def calls(self) -> list[tuple[str, str]]:
        """Adapter calls since the last time: path and name."""
        made = [
            (path.removeprefix("/v1/"), json.loads(body)["lora_name"])
            for path, body in zip(self.engine.paths, self.engine.bodies, strict=True)
        ]
        self.engine.paths.clear()
        self.engine.bodies.clear()
        return sorted(made)

    def adapters(self) -> dict[str, Any]:
        return {each.pop("name"): each for each in json.loads(json.dumps(self.cluster.statuses[-1]["adapters"]))}

    async def route(self) -> ModelRoute:
        return (await Operator(self.cluster, Settings()).routing_table()).models["ride"]


@pytest.fixture
async def world() -> Any:
    world = Adapted()
    async with world.engine.listening():
        world.cluster.shown_pods = [world.engine.pod("a")]
        yield world
        await world.scraper.close()


async def test_an_adapter_is_loaded_routed_changed_and_removed(world: Adapted, document: Document) -> None:
    world.show(document(engine=ENGINE, adapters=[SQL, CHAT]))
    assert await world.reconcile() == WAITING_SECONDS, "what is on its way is looked at soon"
    load, unload = paths.LOAD_LORA_ADAPTER.removeprefix("/v1/"), paths.UNLOAD_LORA_ADAPTER.removeprefix("/v1/")
    body = json.loads(next(each for each in world.engine.bodies if b"chat" in each))
    assert body["lora_path"] == CHAT["source"]
    assert (body["lora_digest"], body["lora_version"]) == (CHAT["digest"], version(CHAT))
    assert (body["load_inplace"], body["wait"]) == (True, False)
    assert world.calls() == [(load, "chat"), (load, "sql")]
    assert world.cluster.condition("AdaptersLoaded")["reason"] == "Loading"
    route = await world.route()
    assert [each.name for each in route.adapters] == ["sql", "chat"]
    assert route.replicas[0].unserved_names == ("sql", "chat")

    template = world.cluster.children["Deployment"]["spec"]["template"]
    world.show(document(engine=ENGINE, adapters=[SQL, CHAT]), report(SQL), report(CHAT, ready=False, loading=True))
    await world.reconcile()
    assert world.calls() == []
    assert world.cluster.annotations["a"][LORA_ADAPTERS] == "0:sql"
    assert (await world.route()).replicas[0].unserved_names == ("chat",)
    assert world.adapters()["sql"] == {"replicas": 1}
    assert world.adapters()["chat"] == {"replicas": 0, "reason": "Loading", "message": "on 0 of 1 replicas"}

    world.show(document(engine=ENGINE, adapters=[SQL, CHAT]), report(SQL), report(CHAT))
    assert await world.reconcile() == Settings().look_seconds
    assert (await world.route()).replicas[0].unserved_names == ()
    assert world.cluster.condition("AdaptersLoaded")["status"] == "True"

    changed = {**SQL, "source": "hf://org/sql@v2"}
    world.show(document(engine=ENGINE, adapters=[changed]), report(SQL), report(CHAT))
    await world.reconcile()
    assert world.calls() == [(load, "sql"), (unload, "chat")]
    assert world.cluster.annotations["a"][LORA_ADAPTERS] == "0:sql", "the version before serves"
    assert world.adapters() == {"sql": {"replicas": 1, "reason": "Loading", "message": "on 1 of 1 replicas"}}

    world.show(document(engine=ENGINE), report(changed))
    await world.reconcile()
    assert world.calls() == [(unload, "sql")]
    assert LORA_ADAPTERS not in world.cluster.annotations["a"]
    assert "adapters" not in world.cluster.statuses[-1]
    assert world.cluster.condition("AdaptersLoaded") == {}
    assert world.cluster.children["Deployment"]["spec"]["template"] == template, "no pod restarts"
    assert [event.reason for event in world.cluster.events if event.reason.startswith("Adapter")] == [
        "AdapterLoaded", "AdapterLoaded", "AdapterRemoved", "AdapterRemoved"
    ]  # fmt: skip


async def test_a_broken_adapter_is_named_once_and_tried_again(world: Adapted, document: Document) -> None:
    failed = report(SQL, ready=False, fault="SourceNotFound: hf://org/sql", failed_at=0)
    manifest = document(engine=ENGINE, adapters=[SQL, CHAT])
    for now in (0.0, 10.0, 20.0):
        world.engine.numbers["time"] = now
        world.show(manifest, failed, report(CHAT))
        await world.reconcile()
    assert world.calls() == []
    world.engine.numbers["time"] = RETRY_SECONDS
    await world.reconcile()
    assert world.calls() == [("load_lora_adapter", "sql")]
    world.show(manifest, {**failed, "loading": True}, report(CHAT))
    await world.reconcile()
    assert world.calls() == []
    condition = world.cluster.condition("AdaptersLoaded")
    assert (condition["status"], condition["reason"]) == ("False", "LoadFailed")
    assert condition["message"] == "sql: a: SourceNotFound: hf://org/sql"
    assert world.adapters()["chat"] == {"replicas": 1}
    assert world.cluster.condition("Ready")["status"] == "True", "a broken adapter is no broken fleet"
    assert world.cluster.annotations["a"][LORA_ADAPTERS] == "0:chat"
    events = [event for event in world.cluster.events if event.reason.startswith("Adapter")]
    assert sorted(event.reason for event in events) == ["AdapterLoadFailed", "AdapterLoaded"]


async def test_an_engine_that_reports_no_adapters_has_a_reason(world: Adapted, document: Document) -> None:
    world.show(document(engine=ENGINE, adapters=[SQL]))
    world.engine.numbers["adapters"] = None
    await world.reconcile()
    assert world.calls() == []
    assert "maxAdapterMemory must be above 0" in world.adapters()["sql"]["message"]


def test_a_next_run_of_an_engine_has_no_adapters(world: Adapted) -> None:
    pod = world.engine.pod("a", annotations={LORA_ADAPTERS: "0:sql,org/chat:v2"})
    assert read_pod(pod).lora_adapters == ("sql", "org/chat:v2")
    pod["status"]["containerStatuses"] = [{"name": "engine", "restartCount": 1}]
    assert read_pod(pod).lora_adapters == ()
    for text in ("", "sql", ":", "1:", "-"):
        pod["metadata"]["annotations"][LORA_ADAPTERS] = text
        assert read_pod(pod).lora_adapters == (), text


def test_adapters_change_no_child(document: Document) -> None:
    plain, adapted = (
        build_children(parse_resource(document(engine=ENGINE, **spec)), 1, RootKeys(["root"]))
        for spec in ({}, {"adapters": [SQL, CHAT]})
    )
    assert plain == adapted


def test_an_engine_fetches_adapters_into_its_scratch_folder(document: Document) -> None:
    def env(**spec: Any) -> dict[str, str]:
        made = build_children(parse_resource(document(**spec)), 1, RootKeys(["root"]))[-1]
        return {
            each["name"]: each["value"] for each in made["spec"]["template"]["spec"]["containers"][0].get("env", ())
        }

    remote = {"source": "hf://org/model"}
    assert env() == {}
    assert env(model=remote)["HF_HUB_OFFLINE"] == "1"
    folder = {"PATERNOSTER_ADAPTERS": "/tmp/adapters", "PATERNOSTER_ADAPTERS_LIMIT": str(2 * 2**30)}
    assert env(engine=ENGINE) == folder
    assert env(engine=ENGINE, model=remote) == {"PATERNOSTER_MODELS": "/mnt/model", **folder}
    large = {"limits": {"ephemeral-storage": "10Gi"}}
    assert env(engine=ENGINE, resources=large)["PATERNOSTER_ADAPTERS_LIMIT"] == str(5 * 2**30)


async def test_keys_of_an_adapter_are_those_of_its_tenants(world: Adapted, document: Document) -> None:
    entries = [{"name": name, "sha256": digest_key(name)} for name in ("team-a", "team-b")]
    world.cluster.secrets[Key(KEY.namespace, "clients")] = {"key": yaml.safe_dump(entries)}
    adapters = [SQL, {**CHAT, "keys": ["team-b", "gone"]}]
    world.show(document(engine=ENGINE, adapters=adapters, security={"apiKeys": [{"name": "clients"}]}))
    route = await world.route()
    assert {each.name: each.key_digests for each in route.adapters} == {"sql": None, "chat": [digest_key("team-b")]}


def test_an_adapter_has_not_the_name_of_its_own_fleet(document: Document) -> None:
    with pytest.raises(
        InvalidManifest, match=r"has ride: none of spec.adapters must have the name of the LLMDeployment"
    ):
        parse_resource(document(engine=ENGINE, adapters=[{**SQL, "name": "ride"}]))


async def test_an_adapters_name_has_one_fleet(document: Document) -> None:
    """Like an alias: the second fleet that wants it keeps what it had."""
    cluster, first, second = Fleets(document), Key("team-a", "first"), Key("team-b", "second")

    def adapt(key: Key, *names: str) -> None:
        spec = cluster.documents[key]["spec"]
        spec |= {"engine": ENGINE, "adapters": [{"name": name, "source": "hf://org/a"} for name in names]}
        cluster.versions += 1
        cluster.documents[key]["metadata"]["resourceVersion"] = str(cluster.versions)

    cluster.put(first, "one", created="2026-01-01T00:00:00Z")
    cluster.put(second, "two", created="2026-02-01T00:00:00Z")
    adapt(first, "sql")
    adapt(second, "sql")
    operator = Operator(cluster, Settings())
    table = await operator.routing_table()
    assert table.first_names == {"one": "one", "sql": "one"}
    names, refusal = await operator._directory.claim_names(parse_resource(cluster.documents[second]))
    assert names == ()
    assert refusal is not None
    assert refusal[0] == "ServedNameTaken"
    assert "the served name sql belongs to LLMDeployment team-a/first" in refusal[1]
    adapt(second, "chat")
    assert (await operator.routing_table()).first_names == {"one": "one", "sql": "one", "two": "two", "chat": "two"}
    # One that had names keeps them, with the adapters among them.
    adapt(second, "chat", "sql")
    table = await operator.routing_table()
    assert table.first_names == {"one": "one", "sql": "one", "two": "two", "chat": "two"}
    assert [each.name for each in table.models["two"].adapters] == ["chat"]


async def test_names_of_adapters_that_are_gone_are_no_more_aliases_than_there_may_be(document: Document) -> None:
    """Or the fleet of one tenant would make a gateway's statistics unreadable for all."""
    cluster, first, second = Fleets(document), Key("team-a", "first"), Key("team-b", "second")
    cluster.put(first, "one")
    cluster.put(second, "two")
    spec = cluster.documents[second]["spec"]
    spec |= {"engine": ENGINE, "adapters": [{"name": f"a{i}", "source": "hf://org/a"} for i in range(MAX_ADAPTERS)]}
    operator = Operator(cluster, Settings())
    assert len((await operator.routing_table()).models["two"].adapters) == MAX_ADAPTERS
    cluster.put(second, "two", "one")
    row = (await operator.routing_table()).models["two"]
    assert (len(row.aliases), row.adapters) == (MAX_ALIASES, [])
