"""What every image starts: the command itself, which answers signals from its first instruction on, without rights."""

import json
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    file
    for pattern in ("*/Dockerfile", "*/*/*/*.Dockerfile")
    for file in ROOT.glob(pattern)
    if not any(part.startswith(".") for part in file.relative_to(ROOT).parts)
)


def last_stage(file: Path) -> dict[str, str]:
    """Instruction -> what its last one says, in the stage that the image is."""
    instructions: dict[str, str] = {}
    for line in file.read_text().replace("\\\n", " ").splitlines():
        instruction, _, words = line.strip().partition(" ")
        if instruction == "FROM":
            instructions = {}
        instructions[instruction] = words.strip()
    return instructions


def test_all_are_looked_at() -> None:
    names = {file.parent.name for file in FILES}
    assert names == {"operator", "gateway", "engine", "artifacts"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_process_1_is_the_command_and_nobody(file: Path) -> None:
    """In exec form: the shell of the other form would be process 1, and pass no signal on."""
    instructions = last_stage(file)
    assert json.loads(instructions["ENTRYPOINT"]) == ["paternoster"]
    assert isinstance(json.loads(instructions.get("CMD", "[]")), list)
    assert instructions["USER"] == "65532:65532"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_a_user_who_is_in_no_list_has_a_home_that_can_be_written(file: Path) -> None:
    """OpenShift chooses the user: its home would be /, in a root file system that is read-only."""
    assert {"HOME=/tmp", "USER=paternoster"} <= set(last_stage(file)["ENV"].split())


def test_the_build_context_has_every_folder_that_the_wheel_is_built_from() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    folders = {package.partition("/")[0] for package in build["targets"]["wheel"]["packages"]}
    assert {"common", "engine", "operator"} <= folders
    assert folders <= {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    for file in (ROOT / name / "Dockerfile" for name in ("operator", "gateway", "engine")):
        assert {f"COPY {folder} {folder}" for folder in folders} <= set(file.read_text().splitlines()), file
