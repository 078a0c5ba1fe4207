"""What pages point at is there: files, headings, and the folders that the page on the structure lists."""

import re
from collections.abc import Collection, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from paternoster_operator.api.crd import object_schema
from paternoster_operator.api.stored import REMOVED_FIELDS

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = {".venv", ".git", ".pytest_cache", "node_modules", "dist"}
KUBERNETES_OWN = ("spec.podTemplate.spec", "spec.tolerations", "spec.topologySpreadConstraints")
"""Fields whose meaning is that of Kubernetes' own pods, which its pages have."""
PAGES = sorted(page for page in ROOT.rglob("*.md") if not HIDDEN & set(page.relative_to(ROOT).parts))


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    texts = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


def broken(page: Path) -> list[str]:
    """Relative links that lead nowhere."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_seen(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A `name`, and more\n```\n# none\n```\n")
    page = tmp_path / "page.md"
    good = "[a](other.md#a-name-and-more) [b](https://example.org/x#y) [c](other.md)"
    page.write_text(f"# Page\n{good} [d](#page) [e](gone.md) [f](other.md#none) [g](#nowhere)\n")
    assert broken(page) == ["gone.md", "other.md#none", "#nowhere"]


def spelled_out(path: str) -> list[str]:
    """A path with ``{a,b}`` in it as several paths."""
    parts = [part.split(",") if number % 2 else [part] for number, part in enumerate(re.split(r"[{}]", path))]
    return ["".join(words) for words in product(*parts)]


def test_the_folders_of_the_structure_are_there() -> None:
    table = (ROOT / "docs/structure.md").read_text(encoding="utf-8").partition("## The core")[0]
    folders = [path for row in re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) for path in spelled_out(row)]
    assert len(folders) > 30
    assert [path for path in folders if not (ROOT / path).is_dir()] == []


def test_the_files_where_changes_start_are_there() -> None:
    section = (ROOT / "docs/structure.md").read_text(encoding="utf-8").partition("## Where to start")[2]
    named = re.findall(r"`((?:common|engine|kernels|operator|gateway|simulator|charts|tests)/[^`]+)`", section)
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_condition_is_on_the_page_of_kubernetes() -> None:
    page = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
    report = (ROOT / "operator/paternoster_operator/report").rglob("*.py")
    types = {
        type_ for path in report for type_ in re.findall(r'\bCondition\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert len(types) > 8
    assert sorted(type_ for type_ in types if f"`{type_}`" not in page) == []


def list_unnamed(node: dict[str, Any], path: str, words: Collection[str]) -> Iterator[str]:
    """The fields below ``path`` that are none of ``words``."""
    for name, child in node.get("properties", {}).items():
        field = f"{path}.{name}"
        if not field.startswith(KUBERNETES_OWN) and tuple(field.split(".")) not in REMOVED_FIELDS:
            if name not in words:
                yield field
            yield from list_unnamed(child, field, words)
    for inner in ("items", "additionalProperties"):
        if isinstance(node.get(inner), dict):
            yield from list_unnamed(node[inner], path, words)


def test_every_setting_of_a_manifest_is_on_a_page() -> None:
    words = {word for page in (ROOT / "docs").rglob("*.md") for word in re.findall(r"\w+", page.read_text("utf-8"))}
    assert sorted(list_unnamed(object_schema()["properties"]["spec"], "spec", words)) == []


def test_a_setting_on_no_page_is_seen() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"items": {"properties": {"b": {}}}}, "tolerations": {}}}
    assert list(list_unnamed(schema, "spec", {"a"})) == ["spec.a.b"]


RELATED_WORK = {
    "engines.md": ("vllm-project/vllm/pull/54816",),
    "routing.md": ("llm-d.ai/docs/", "Dynamo", "SMG"),
    "streams.md": ("request-migration", "--migration-limit 0", "ai-dynamo/dynamo/issues/7930"),
    "control.md": ("PrimeIntellect-ai/prime-rl/pull/3285", "vllm-project/vllm/issues/52906", "planner-guide"),
}
"""What else does the same, by page: a reader is to find what this project is not alone with."""


@pytest.mark.parametrize("name", RELATED_WORK)
def test_a_page_names_who_else_does_the_same(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert [work for work in RELATED_WORK[name] if work not in text] == []


def test_the_page_of_the_law_names_the_commits_of_the_policies_beside_it() -> None:
    report = (ROOT / "benchmarks/control/results.md").read_text(encoding="utf-8")
    sources = report.partition("## The sources")[2].partition("\n## ")[0]
    commits = re.findall(r"\b[0-9a-f]{8}\b", sources)
    assert len(commits) >= 6
    text = (ROOT / "docs/control.md").read_text(encoding="utf-8")
    assert [commit for commit in commits if commit not in text] == []
    dates = re.findall(r"Read on (\d+ \w+ \d+)", sources)
    assert dates
    assert [date for date in dates if date not in text] == []
