"""Words of docs, fields, flags and chart values only get fewer: ``budgets.json`` has the most of each."""

import argparse
import importlib
import json
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import yaml

from paternoster_contract.cli.subcommands import GROUP

ROOT = Path(__file__).resolve().parents[2]
BUDGETS = Path(__file__).with_name("budgets.json")
SLACK = 0.01
"""Share of a budget that may be unused before it has to be lowered: a line more or less of a page is none."""


def count_words(folder: Path) -> int:
    """Count as ``wc -w`` does, over all pages below ``folder``."""
    return sum(len(page.read_text(encoding="utf-8").split()) for page in folder.rglob("*.md"))


def count_properties(schema: Any) -> int:
    """The fields of an OpenAPI schema, of objects in it as well."""
    if isinstance(schema, list):
        return sum(map(count_properties, schema))
    if not isinstance(schema, dict):
        return 0
    named = schema.get("properties", {})
    inner = [value for key, value in schema.items() if key != "properties"]
    return len(named) + count_properties([*named.values(), *inner])


def count_leaves(values: Any) -> int:
    """The values of a chart that are no mapping of others."""
    return sum(map(count_leaves, values.values())) if isinstance(values, dict) and values else 1


def list_flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    """One name for each flag, of subcommands as well; ``--help`` is none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from list_flags(subparser)
        elif action.option_strings and action.dest != "help":
            yield action.option_strings[-1]


def count_flags() -> int:
    """Count the flags of all commands."""
    flags = 0
    for entry in entry_points(group=GROUP):
        parser = argparse.ArgumentParser()
        importlib.import_module(entry.value).add_arguments(parser)
        flags += sum(1 for _ in list_flags(parser))
    return flags


def count_all() -> dict[str, int]:
    (crd,) = (ROOT / "crds").glob("*.yaml")
    versions = yaml.safe_load(crd.read_text(encoding="utf-8"))["spec"]["versions"]
    values = yaml.safe_load((ROOT / "charts/paternoster/values.yaml").read_text(encoding="utf-8"))
    return {
        "words of docs": count_words(ROOT / "docs"),
        "properties of the CRD": sum(count_properties(version["schema"]["openAPIV3Schema"]) for version in versions),
        "flags of all commands": count_flags(),
        "values of the chart": count_leaves(values),
    }


def list_faults(counts: dict[str, int], budgets: dict[str, int]) -> list[str]:
    """Budgets that are exceeded, or that may be lower."""
    return [
        f"{name}: {count}, and the budget is {budgets[name]}: "
        + ("remove what is read or set least" if count > budgets[name] else f"lower it in {BUDGETS.name}")
        for name, count in counts.items()
        if not budgets[name] * (1 - SLACK) <= count <= budgets[name]
    ]


def test_nothing_exceeds_its_budget() -> None:
    budgets = json.loads(BUDGETS.read_text(encoding="utf-8"))
    counts = count_all()
    assert counts.keys() == budgets.keys()
    assert list_faults(counts, budgets) == []


def test_more_than_the_budget_and_much_less_are_faults() -> None:
    assert list_faults({"a": 1000, "b": 995, "c": 990}, {"a": 1000, "b": 1000, "c": 1000}) == []
    assert list_faults({"a": 1001, "b": 989}, {"a": 1000, "b": 1000}) == [
        "a: 1001, and the budget is 1000: remove what is read or set least",
        "b: 989, and the budget is 1000: lower it in budgets.json",
    ]


def test_each_is_counted(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.md").write_text("two words\n", encoding="utf-8")
    (tmp_path / "sub/b.md").write_text("| a | row |\n", encoding="utf-8")
    assert count_words(tmp_path) == 7
    assert count_properties({"properties": {"a": {"items": {"properties": {"properties": {"type": "string"}}}}}}) == 2
    assert count_leaves({"a": {"b": 1, "c": {}}, "d": [1, 2]}) == 3
    parser = argparse.ArgumentParser()
    parser.add_argument("-f", "--file")
    parser.add_subparsers().add_parser("run").add_argument("--rate")
    assert list(list_flags(parser)) == ["--file", "--rate"]
