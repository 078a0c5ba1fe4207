"""The installation is in one namespace, whichever page a reader begins with."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "paternoster-system"
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "charts").rglob("*.md"),
    *(ROOT / "examples").rglob("*.md"),
]
HELM = re.compile(r"helm (?:install|upgrade|uninstall|test) (?:[^\n`]|\\\n)*?(?:-n|--namespace)[ =](\S+?)[`.]?(?=\s)")


def test_helm_is_called_for_one_namespace() -> None:
    found = {(page.name, name) for page in PAGES for name in HELM.findall(page.read_text(encoding="utf-8"))}
    assert {page for page, _ in found} >= {"README.md", "kubernetes.md", "monitoring.md"}
    assert {name for _, name in found} == {NAMESPACE}
    kinds = ("application-operator.yaml", "operator.yaml")
    for file in (file for file in (ROOT / "examples/gitops").rglob("*.yaml") if file.name in kinds):
        assert f"amespace: {NAMESPACE}" in file.read_text(encoding="utf-8"), file
