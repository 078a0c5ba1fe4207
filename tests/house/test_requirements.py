"""What the images bring is what the tests run with: the same versions, each by hash."""

import re
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ("operator", "gateway", "engine")


def versions(file: Path) -> dict[str, str]:
    """Package -> version and marker, of a file for ``pip install -r``; packages that no machine gets are left out."""
    lines = (line.rstrip(" \\\n") for line in file.read_text().splitlines() if line[:1].isalnum())
    found = dict(line.partition("==")[::2] for line in lines)
    return {name: version for name, version in found.items() if "'never'" not in version}


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_the_versions_that_are_tested(image: str) -> None:
    tested = {name: version.partition(" ")[0] for name, version in versions(ROOT / "constraints.txt").items()}
    wanted = {name: version.partition(" ")[0] for name, version in versions(ROOT / f"requirements/{image}.txt").items()}
    assert wanted
    assert {name: tested.get(name) for name in wanted} == wanted


def test_the_operators_image_fetches_models_without_torch() -> None:
    listed = versions(ROOT / "requirements/operator.txt")
    requirements = [Requirement(line) for line in requires("paternoster") or []]
    fetching = {canonicalize_name(each.name) for each in requirements if each.marker and "sources" in str(each.marker)}
    assert "huggingface-hub" in fetching
    assert fetching <= {canonicalize_name(name) for name in listed}
    assert not {"torch", "triton", "numpy"} & set(listed)


@pytest.mark.parametrize("name", [*IMAGES, "build", "audit", "dev", "setup"])
def test_every_package_has_hashes(name: str) -> None:
    blocks = re.split(r"\n(?=\S)", (ROOT / f"requirements/{name}.txt").read_text().strip())
    bare = [block.splitlines()[0] for block in blocks if "==" in block and "--hash=sha256:" not in block]
    assert len(blocks) > 1
    assert bare == []


@pytest.mark.parametrize("image", IMAGES)
def test_a_dockerfile_installs_by_hash_alone(image: str) -> None:
    text = (ROOT / image / "Dockerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"pip install (.*)", text)
    assert installs
    assert all("--require-hashes" in words or "--no-index" in words for words in installs)


def test_the_venv_has_the_versions_of_the_constraints_by_hash_alone() -> None:
    assert versions(ROOT / "requirements/dev.txt") == versions(ROOT / "constraints.txt")
    setup = (ROOT / "scripts/setup").read_text().replace("\\\n", " ")
    installs = re.findall(r"\binstall( .*(?:-r|-e) .*)", setup)
    assert len(installs) == 4
    assert [words for words in installs if "--require-hashes" not in words] == [" --offline --quiet -e ."]


@pytest.mark.parametrize("image", IMAGES)
def test_a_base_image_is_named_by_its_digest(image: str) -> None:
    """A tag is whatever the registry's owner has put there last."""
    text = (ROOT / image / "Dockerfile").read_text()
    assert re.findall(r"^ARG BASE=(.*)", text, re.MULTILINE) == [base_of("operator")]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base_of(image))
    assert {line.split()[1] for line in text.splitlines() if line.startswith("FROM ")} == {"${BASE}"}


def base_of(image: str) -> str:
    return re.search(r"^ARG BASE=(.*)", (ROOT / image / "Dockerfile").read_text(), re.MULTILINE)[1]
