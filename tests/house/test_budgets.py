"""Words of docs, fields, flags, chart values and constants only get fewer: ``budgets.json`` has the most of each."""

import argparse
import ast
import importlib
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import yaml

from paternoster_contract.cli.subcommands import GROUP

ROOT = Path(__file__).resolve().parents[2]
BUDGETS = Path(__file__).with_name("budgets.json")
PRODUCT = ("common", "engine", "gateway", "kernels", "load", "operator", "simulator")
SLACK = 0.01
"""Share of a budget that may be unused before it has to be lowered: a line more or less of a page is none."""


def count_words(folder: Path) -> int:
    """Count as ``wc -w`` does, over all pages below ``folder``."""
    return sum(len(page.read_text(encoding="utf-8").split()) for page in folder.rglob("*.md"))


def list_properties(schema: Any) -> Iterator[Any]:
    """The fields of an OpenAPI schema, of objects in it as well."""
    if isinstance(schema, list):
        for each in schema:
            yield from list_properties(each)
    elif isinstance(schema, dict):
        named = list(schema.get("properties", {}).values())
        yield from named
        yield from list_properties([*named, *(value for key, value in schema.items() if key != "properties")])


def is_removed(field: Any) -> bool:
    """Whether the schema has a field only to name what takes its place."""
    return any(rule["message"].startswith("was removed") for rule in field.get("x-kubernetes-validations", ()))


def count_constants(code: str) -> int:
    """Count the names of a module, in capitals, that are a number or worked out of numbers."""
    statements = [each for each in ast.parse(code).body if isinstance(each, ast.Assign | ast.AnnAssign)]
    return sum(1 for each in statements if _is_constant(each) and each.value is not None and _is_number(each.value))


def _is_constant(statement: ast.Assign | ast.AnnAssign) -> bool:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    return isinstance(target, ast.Name) and target.id.isupper()


def _is_number(value: ast.expr) -> bool:
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand)
    if isinstance(value, ast.BinOp):
        return _is_number(value.left) and _is_number(value.right)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


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
    parts = [version["schema"]["openAPIV3Schema"]["properties"] for version in versions]
    fields = [field for part in parts for field in list_properties(part["spec"])]
    values = yaml.safe_load((ROOT / "charts/paternoster/values.yaml").read_text(encoding="utf-8"))
    return {
        "words of docs": count_words(ROOT / "docs"),
        "fields of a manifest's spec": sum(1 for field in fields if not is_removed(field)),
        "removed fields that are refused by name": sum(map(is_removed, fields)),
        "fields of a status": sum(1 for part in parts for _ in list_properties(part["status"])),
        "flags of all commands": count_flags(),
        "values of the chart": count_leaves(values),
        "numeric constants": sum(
            count_constants(file.read_text(encoding="utf-8"))
            for part in PRODUCT
            for file in (ROOT / part).rglob("*.py")
        ),
    }


def list_faults(counts: dict[str, int], budgets: dict[str, int]) -> list[str]:
    """Budgets that are exceeded, or that may be lower."""
    return [
        f"{name}: {count}, and the budget is {budgets[name]}: "
        + (
            "remove what is read or set least, or raise it, with 'Raises NAME: why' in the commit"
            if count > budgets[name]
            else f"lower it in {BUDGETS.name}"
        )
        for name, count in counts.items()
        if not budgets[name] * (1 - SLACK) <= count <= budgets[name]
    ]


def list_unexplained(before: Mapping[str, int], after: Mapping[str, int], message: str) -> list[str]:
    """Budgets that a commit raises, and whose names no line of its message has behind ``Raises``."""
    raised = [name for name in before.keys() & after.keys() if after[name] > before[name]]
    return sorted(name for name in raised if not re.search(rf"^Raises {re.escape(name)}: \S", message, re.MULTILINE))


def read_git(*words: str, check: bool = True) -> str:
    """The output of git; empty where it fails and ``check`` is False."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=check).stdout


def test_a_commit_that_raises_a_budget_says_why() -> None:
    """The last commits are read, those that were made where this test was."""
    file, test = (str(path.relative_to(ROOT)) for path in (BUDGETS, Path(__file__)))
    for commit in read_git("log", "--max-count=20", "--no-merges", "--format=%H", "--", file).split():
        parents = read_git("log", "--max-count=1", "--format=%P", commit).split()
        for parent in parents:
            if "list_unexplained" in read_git("show", f"{parent}:{test}", check=False):
                before, after = (json.loads(read_git("show", f"{revision}:{file}")) for revision in (parent, commit))
                message = read_git("log", "--max-count=1", "--format=%B", commit)
                assert list_unexplained(before, after, message) == [], commit


def test_a_raise_is_explained_by_the_name_of_its_budget() -> None:
    before, after = {"a": 1, "b": 2, "c": 3}, {"a": 2, "b": 2, "d": 9}
    assert list_unexplained(before, after, "Add x\n\nRaises b: it is needed") == ["a"]
    assert list_unexplained({"a": 1}, {"a": 2}, "Add x\n\nRaises a:\n") == ["a"]
    assert list_unexplained({"a": 1}, {"a": 2}, "Add x\n\nRaises a: y needs one.") == []


def test_nothing_exceeds_its_budget() -> None:
    budgets = json.loads(BUDGETS.read_text(encoding="utf-8"))
    counts = count_all()
    assert counts.keys() == budgets.keys()
    faults = list_faults(counts, budgets)
    assert not faults, "\n".join(faults)


def test_more_than_the_budget_and_much_less_are_faults() -> None:
    assert list_faults({"a": 1000, "b": 995, "c": 990}, {"a": 1000, "b": 1000, "c": 1000}) == []
    assert list_faults({"a": 1001, "b": 989}, {"a": 1000, "b": 1000}) == [
        "a: 1001, and the budget is 1000: remove what is read or set least, or raise it, with 'Raises NAME: why' in "
        "the commit",
        "b: 989, and the budget is 1000: lower it in budgets.json",
    ]


def test_each_is_counted(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.md").write_text("two words\n", encoding="utf-8")
    (tmp_path / "sub/b.md").write_text("| a | row |\n", encoding="utf-8")
    assert count_words(tmp_path) == 7
    nested = {"properties": {"a": {"items": {"properties": {"properties": {"type": "string"}}}}}}
    assert len(list(list_properties(nested))) == 2
    assert is_removed({"x-kubernetes-validations": [{"rule": "false", "message": "was removed: use b"}]})
    assert not is_removed({"type": "object", "properties": {"message": {"type": "string"}}})
    code = "A = 2\nB: float = -1.5\nC_D = 4 * 2**20\nE = True\nF = len('x')\ng = 3\nH: int\nclass I:\n    J = 1\n"
    assert count_constants(code) == 3
    assert count_leaves({"a": {"b": 1, "c": {}}, "d": [1, 2]}) == 3
    parser = argparse.ArgumentParser()
    parser.add_argument("-f", "--file")
    parser.add_subparsers().add_parser("run").add_argument("--rate")
    assert list(list_flags(parser)) == ["--file", "--rate"]
