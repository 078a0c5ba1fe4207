"""Resources of an older schema are served; manifests of it get an error with what to change."""

from collections.abc import Callable
from typing import Any

import pytest
from cel import cel

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.api.crd import object_schema
from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.api.stored import (
    REMOVED_FIELDS,
    REMOVED_VALUES,
    RemovedField,
    with_successors,
)
from paternoster_operator.autoscaling.tuning import DEFAULT_TUNING

Document = Callable[..., dict[str, Any]]
REMOVED = [(path, old, new) for path, values in REMOVED_VALUES.items() for old, new in values.items()]


def at(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """``value`` in as many mappings as ``path`` has names."""
    for name in reversed(path):
        value = {name: value}
    return value


@pytest.mark.parametrize(("path", "old", "new"), REMOVED)
def test_a_stored_value_that_was_removed_is_its_successor(
    document: Document, path: tuple[str, ...], old: str, new: str
) -> None:
    spec = at(path[1:], old)
    with pytest.raises(InvalidManifest, match=rf"{'.'.join(path)}: is '{old}': was removed: use '{new}'"):
        parse_resource(document(**spec))
    stored = document(**spec)
    assert parse_resource(with_successors(stored)[0]) == parse_resource(document(**at(path[1:], new)))
    assert stored == document(**spec), "what the cluster's cache holds is left alone"
    assert with_successors(stored)[1] == (f"{'.'.join(path)} is '{old}', which was removed: '{new}' takes its place",)


@pytest.mark.parametrize(("path", "removed"), REMOVED_FIELDS.items())
def test_a_removed_field_is_refused_and_a_stored_one_is_left_out(
    document: Document, path: tuple[str, ...], removed: RemovedField
) -> None:
    field, stored = ".".join(path), document(**at(path[1:], 3))
    with pytest.raises(InvalidManifest) as refused:
        parse_resource(stored)
    assert refused.value.errors == [f"{field}: was removed: {removed.successor}; leave it out"]
    assert parse_resource(with_successors(stored)[0]) == parse_resource(document())
    assert stored == document(**at(path[1:], 3)), "what the cluster's cache holds is left alone"
    assert with_successors(stored)[1] == (f"{field} is 3, but was removed: {removed.successor}; leave it out",)


@pytest.mark.parametrize(("path", "removed"), REMOVED_FIELDS.items())
def test_a_former_default_which_api_servers_wrote_into_each_object_makes_no_difference(
    document: Document, path: tuple[str, ...], removed: RemovedField
) -> None:
    if removed.default is not None:
        stored = document(**at(path[1:], removed.default))
        assert parse_resource(stored) == parse_resource(document())
        assert with_successors(stored)[1] == ()


@pytest.mark.parametrize(("path", "removed"), REMOVED_FIELDS.items())
def test_the_schema_takes_a_removed_field_with_its_former_default_alone(
    path: tuple[str, ...], removed: RemovedField
) -> None:
    """API servers prune what a schema has not, and leave rules of unchanged values out: a stored one is kept."""
    node = object_schema()
    for name in path:
        node = node["properties"][name]
    (rule,) = node["x-kubernetes-validations"]
    assert rule["message"] == f"was removed: {removed.successor}; leave it out"
    assert "default" not in node
    others = ("other", "") if node["type"] == "string" else (3, -1)
    for value in (removed.default, *others):
        if value is not None:
            allows = cel.compile(rule["rule"]).execute(cel.Context({"self": value}))
            assert allows is (value == removed.default)


def test_the_laws_constants_are_the_former_defaults() -> None:
    """A fleet that set none of them behaves as before."""
    tuning, defaults = DEFAULT_TUNING, {path[-1]: removed.default for path, removed in REMOVED_FIELDS.items()}
    assert {
        "windowSeconds": tuning.window_seconds,
        "cooldownSeconds": tuning.replica_period_seconds,
        "increaseStep": tuning.cap_step,
        "decreasePercent": tuning.max_cap_cut_share * 100,
        "kvHighWatermarkPercent": tuning.planned_kv_usage * 100,
        "minFinishedRequests": tuning.min_ended_requests,
    }.items() <= defaults.items()


@pytest.mark.parametrize("spec", [{}, {"engine": {}}, {"engine": {"order": "priority"}}, {"engine": {"order": 3}}])
def test_others_are_left_as_they_are(document: Document, spec: dict[str, Any]) -> None:
    stored = document(**spec)
    assert with_successors(stored)[0] is stored


@pytest.mark.parametrize("document", [{}, {"spec": None}, {"spec": {"engine": []}}])
def test_what_is_no_manifest_is_left_to_the_parser(document: dict[str, Any]) -> None:
    assert with_successors(document)[0] is document


@pytest.mark.parametrize(("path", "old", "new"), REMOVED)
def test_the_successor_is_a_value_of_the_flag(path: tuple[str, ...], old: str, new: str) -> None:
    assert EngineArgs.model_validate({path[-1]: new})
    with pytest.raises(ValueError, match=f"was removed: use '{new}'"):
        EngineArgs.model_validate({path[-1]: old})
