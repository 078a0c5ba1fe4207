"""Resources of an older schema are served; manifests of it get an error with what to change."""

from collections.abc import Callable
from typing import Any

import pytest

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.api.stored import REMOVED_FIELDS, REMOVED_VALUES, with_successors

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
    assert parse_resource(with_successors(stored)) == parse_resource(document(**at(path[1:], new)))
    assert stored == document(**spec), "what the cluster's cache holds is left alone"


@pytest.mark.parametrize(("path", "instead"), REMOVED_FIELDS.items())
def test_a_removed_field_is_refused_and_a_stored_one_is_left_out(
    document: Document, path: tuple[str, ...], instead: str
) -> None:
    stored = document(**at(path[1:], 3))
    with pytest.raises(InvalidManifest, match=rf"{'.'.join(path)}: was removed: {instead}"):
        parse_resource(stored)
    assert parse_resource(with_successors(stored)) == parse_resource(document())
    assert stored == document(**at(path[1:], 3)), "what the cluster's cache holds is left alone"


@pytest.mark.parametrize("spec", [{}, {"engine": {}}, {"engine": {"order": "priority"}}, {"engine": {"order": 3}}])
def test_others_are_left_as_they_are(document: Document, spec: dict[str, Any]) -> None:
    stored = document(**spec)
    assert with_successors(stored) is stored


@pytest.mark.parametrize("document", [{}, {"spec": None}, {"spec": {"engine": []}}])
def test_what_is_no_manifest_is_left_to_the_parser(document: dict[str, Any]) -> None:
    assert with_successors(document) is document


@pytest.mark.parametrize(("path", "old", "new"), REMOVED)
def test_the_successor_is_a_value_of_the_flag(path: tuple[str, ...], old: str, new: str) -> None:
    assert EngineArgs.model_validate({path[-1]: new})
    with pytest.raises(ValueError, match=f"was removed: use '{new}'"):
        EngineArgs.model_validate({path[-1]: old})
