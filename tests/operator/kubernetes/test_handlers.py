"""What kopf is given: every handler a coroutine, and nothing that is copied or written for it."""

import inspect

import kopf

from paternoster_operator import handlers
from paternoster_operator.cluster.buckets import ONLY_SHARD


def test_kopf_needs_no_thread_for_an_event() -> None:
    registry = kopf.get_default_registry()
    named = [*registry._indexing.get_all_handlers(), *registry._watching.get_all_handlers()]
    ours = [handler.fn for handler in named if handler.fn.__module__ == handlers.__name__]
    assert {fn.__name__ for fn in ours} >= {
        "resource_index",
        "object_index",
        "replica_set_index",
        "resource_changed",
        "child_changed",
    }
    assert [fn for fn in ours if not inspect.iscoroutinefunction(fn)] == []


def test_kopf_keeps_no_copy_of_what_it_handled() -> None:
    settings = kopf.OperatorSettings()
    handlers.configure_kopf(settings, ONLY_SHARD)
    storage = settings.persistence.diffbase_storage
    body = kopf.Body({"metadata": {"name": "ride"}, "spec": {"replicas": 1}})
    patch = kopf.Patch()
    essence = storage.build(body=body)
    storage.store(body=body, patch=patch, essence=essence)
    assert storage.fetch(body=body) is None
    assert (essence, patch) == ({}, {})
