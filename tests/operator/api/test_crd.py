"""The CRD says what the types say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import BaseModel, Field

from paternoster_contract.quantity import parse_quantity
from paternoster_operator.api.columns import COLUMNS
from paternoster_operator.api.crd import FILE_NAME, build_crd, render_crd, to_structural
from paternoster_operator.api.rules import SPEC_RULES
from paternoster_operator.api.v1alpha1 import LLMDeploymentSpec
from paternoster_operator.commands import crd as command

ROOT = Path(__file__).parents[3]


def schema() -> dict[str, Any]:
    found: dict[str, Any] = build_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from nodes(node[key], f"{path}[]")


def test_the_file_in_crds_is_current() -> None:
    assert (ROOT / "crds" / FILE_NAME).read_text() == render_crd()


def test_the_file_has_no_anchors() -> None:
    tokens = list(yaml.scan(render_crd()))
    assert not [token for token in tokens if isinstance(token, (yaml.AnchorToken, yaml.AliasToken))]
    assert yaml.safe_load(render_crd()) == build_crd()


def test_the_schema_is_structural() -> None:
    for path, node in nodes(schema()):
        assert node.get("type") or node.get("x-kubernetes-int-or-string"), f"{path} has no type"
        assert not {"$ref", "$defs", "anyOf", "title", "const", "nullable"} & node.keys(), path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert node.get("default", 0) is not None, path


def test_defaults_reach_every_part_that_rules_look_at() -> None:
    """A rule may only speak of what is there: each object on the way needs a default, or has() before it."""
    spec = schema()["properties"]["spec"]["properties"]
    for name in ("engine", "concurrency", "rollout", "budget", "resources"):
        assert spec[name]["default"] == {}
    assert spec["resources"]["properties"]["gpu"]["default"] == {}
    for name in ("scheduling", "memory", "tenants"):
        assert spec["engine"]["properties"][name]["default"] == {}
    assert spec["autoscaling"]["properties"]["scaleToZero"]["default"] == {}
    assert "default" not in spec["autoscaling"], "its presence means something"


def filled(node: dict[str, Any]) -> Any:
    """The default as the API server has it: what an object lacks is filled from its fields' own."""
    default = node.get("default")
    if not isinstance(default, dict) or "properties" not in node:
        return default
    return {name: filled(child) for name, child in node["properties"].items() if not is_removed(child)} | default


def is_removed(node: dict[str, Any]) -> bool:
    return any("was removed" in rule["message"] for rule in node.get("x-kubernetes-validations", ()))


def test_defaults_are_the_types_own() -> None:
    spec = schema()["properties"]["spec"]["properties"]
    types = LLMDeploymentSpec.model_validate({"model": {"source": "package://x"}})
    dumped = types.model_dump(mode="json", by_alias=True)
    for part in ("engine", "concurrency", "slo", "rollout", "drain", "admission"):
        for name, child in spec[part]["properties"].items():
            assert is_removed(child) or filled(child) == dumped[part][name], f"{part}.{name}"


def test_subresources_columns_and_rules() -> None:
    version = build_crd()["spec"]["versions"][0]
    assert version["subresources"]["scale"]["labelSelectorPath"] == ".status.selector"
    assert [column["name"] for column in version["additionalPrinterColumns"]] == [column.name for column in COLUMNS]
    rules = schema()["properties"]["spec"]["x-kubernetes-validations"]
    assert [rule["rule"] for rule in rules] == [rule.expression for rule in SPEC_RULES]
    assert schema()["properties"]["status"]["default"] == {"observedGeneration": -1}
    conditions = schema()["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_what_a_structural_schema_cannot_say_is_an_error() -> None:
    class Union(BaseModel):
        either: int | list[int]

    class Endless(BaseModel):
        inside: "Endless | None" = None

    class Keyed(BaseModel):
        parts: dict[Annotated[str, Field(max_length=9)], int]

    with pytest.raises(TypeError, match="has no propertyNames in a schema"):
        to_structural(Keyed.model_json_schema())
    with pytest.raises(TypeError, match="no rule for the union"):
        to_structural(Union.model_json_schema())
    with pytest.raises(TypeError, match="contains itself"):
        to_structural(Endless.model_json_schema())


def test_the_command_writes_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import argparse

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    folder = str(tmp_path / "crds")
    assert command.run(parser.parse_args(["--check", folder])) == 1
    assert "run 'make generate'" in capsys.readouterr().err
    assert command.run(parser.parse_args(["--write", folder])) == 0
    assert command.run(parser.parse_args(["--check", folder])) == 0
    assert command.run(parser.parse_args([])) == 0
    assert yaml.safe_load(capsys.readouterr().out) == build_crd()


@pytest.mark.parametrize(
    ("text", "value"), [("512Mi", 2**29), ("500m", 0.5), ("2", 2), ("1.5Gi", 1.5 * 2**30), ("3k", 3000)]
)
def test_quantities(text: str, value: float) -> None:
    assert parse_quantity(text) == value
