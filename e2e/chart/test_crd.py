"""The chart's CRD is the one in crds/, to the last digit."""

from pathlib import Path
from typing import Any

import pytest
import yaml

NAME = "paternoster.dev_llmdeployments.yaml"


def crd(helm: Any, **values: Any) -> dict[str, Any]:
    (found,) = (d for d in helm.render({"crds": values}) if d["kind"] == "CustomResourceDefinition")
    return found


def test_it_is_the_same(helm: Any, root: Path) -> None:
    source = yaml.safe_load((root / "crds" / NAME).read_text("utf-8"))
    rendered = crd(helm)
    assert rendered["spec"] == source["spec"]
    assert rendered["metadata"]["name"] == source["metadata"]["name"]


def test_its_text_is_the_same(helm: Any, root: Path) -> None:
    # equal numbers may be written differently, and 2.147483647e+09 is no integer to an API server
    source = (root / "crds" / NAME).read_text("utf-8")
    spec = source[source.index("\nspec:\n") :]
    assert "2147483647" in spec
    assert spec in helm.text()


@pytest.mark.parametrize("keeps_crd", [True, False])
def test_it_stays_on_uninstall_if_wanted(helm: Any, keeps_crd: bool) -> None:
    annotations = crd(helm, keep=keeps_crd)["metadata"].get("annotations", {})
    assert annotations == ({"helm.sh/resource-policy": "keep"} if keeps_crd else {})
