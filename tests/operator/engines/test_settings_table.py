"""One row makes a setting: its flag, its field of the CRD, what each type of engine gets or refuses, and its docs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.settings.row import list_rows
from paternoster_operator.engines.adapter import RuntimeType
from paternoster_operator.engines.arguments import list_translations

ROOT = Path(__file__).resolve().parents[3]
LAST_ROW = "\n\nclass MemorySettings(KVCacheSettings):"
ROWS = """
    compaction_percent: Annotated[
        int,
        SpecField("engine.memory.compactionPercent"),
        OtherEngines(
            Translation("compact-at"),
            Translation("compaction_share", lambda percent: percent / 100),
            Translation(variable="PATERNOSTER_COMPACTION"),
        ),
    ] = Field(default=5, ge=1, le=90, description="Share of free blocks below which the KV pool is compacted.")
    turbo: Annotated[bool, SpecField("engine.turbo")] = Field(default=False, description="Compute faster.")
"""
PROGRAM = """
import argparse, json, sys
import yaml
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.core.config import SchedulerConfig
from paternoster_operator.api.crd import render_crd
from paternoster_operator.api.manifest import InvalidManifest, parse_resource
from paternoster_operator.desired.engine_args import engine_args
from paternoster_operator.engines.kinds import KINDS

parser = argparse.ArgumentParser()
EngineArgs.add_flags(parser)

def read(engine):
    spec = {"model": {"source": "file:///m"}, "engine": engine}
    names = {"apiVersion": "paternoster.dev/v1alpha1", "kind": "LLMDeployment", "metadata": {"name": "chat"}}
    return parse_resource({**names, "spec": spec})

def refusals(engine):
    try:
        read(engine)
    except InvalidManifest as refused:
        return refused.errors

types = {"VLLM": "i", "SGLang": "i", "OpenAI": "i"}
args = engine_args(read({"memory": {"compactionPercent": 7}, "turbo": True}))
launches = {type_: kind.launch(args) for type_, kind in KINDS.items()}
config = SchedulerConfig(max_batched_tokens=64, max_model_len=64, num_blocks=9, compaction_percent=8)
(version,) = yaml.safe_load(render_crd())["spec"]["versions"]
json.dump(
    {
        "engine": version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["engine"]["properties"],
        "help": parser.format_help(),
        "parsed": EngineArgs.from_namespace(parser.parse_args(["--compaction-percent", "9"])).compaction_percent,
        "scheduler": config.compaction_percent,
        "args": {type_: list(launch.args) for type_, launch in launches.items()},
        "env": launches["OpenAI"].env,
        "bad": refusals({"memory": {"compactionPercent": 91}}),
        "flag": refusals({"extraArgs": ["--compaction-percent", "9"]}),
        "owned": refusals({"runtime": {"type": "VLLM", "image": "i", "args": ["--compact-at=3"]}}),
        "spelled": refusals({"runtime": {"type": "SGLang", "image": "i", "args": ["--compaction_share=0.1"]}}),
        "refused": {type_: refusals({"turbo": True, "runtime": {"type": type_, "image": "i"}}) for type_ in types},
    },
    sys.stdout,
)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the contract and of the pages, with two rows more."""
    folder = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "common/paternoster_contract", folder / "common/paternoster_contract")
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    (folder / "docs").mkdir()
    for page in ("api.md", "engines.md"):
        shutil.copy(ROOT / "docs" / page, folder / "docs")
    table = folder / "common/paternoster_contract/settings/memory.py"
    before, found, after = table.read_text().partition(LAST_ROW)
    table.write_text(before + ROWS + found + after)
    return folder


def run(source: Path, *command: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(source / "common"), "PYTHONSAFEPATH": "1"}
    return subprocess.run([sys.executable, *command], env=env, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def made(source: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(run(source, "-c", PROGRAM))
    return made


def test_it_is_a_field_of_the_crd(made: dict[str, Any]) -> None:
    assert made["engine"]["memory"]["properties"]["compactionPercent"] == {
        "default": 5,
        "description": "Share of free blocks below which the KV pool is compacted.",
        "format": "int32",
        "maximum": 90,
        "minimum": 1,
        "type": "integer",
    }
    assert made["engine"]["turbo"] == {"default": False, "description": "Compute faster.", "type": "boolean"}
    assert made["bad"] == ["spec.engine.memory.compactionPercent: is 91: must be at most 90"]


def test_it_is_a_flag_and_reaches_the_scheduler(made: dict[str, Any]) -> None:
    assert "share of free blocks below which the KV pool is compacted (default: 5)" in " ".join(made["help"].split())
    assert (made["parsed"], made["scheduler"]) == (9, 8)
    (line,) = made["flag"]
    assert line.endswith("--compaction-percent must not be here: use spec.engine.memory.compactionPercent")


def test_each_type_of_engine_is_started_with_it(made: dict[str, Any]) -> None:
    words = [
        ("Paternoster", "--compaction-percent", "7"),
        ("VLLM", "--compact-at", "7"),
        ("SGLang", "--compaction_share", "0.07"),
    ]
    for type_, flag, value in words:
        args = made["args"][type_]
        assert args[args.index(flag) + 1] == value
    assert "--turbo" in made["args"]["Paternoster"]
    assert made["env"]["PATERNOSTER_COMPACTION"] == "7"


def test_engines_that_its_row_does_not_name_refuse_it(made: dict[str, Any]) -> None:
    reasons = {
        "VLLM": "vLLM has no such choice",
        "SGLang": "SGLang has no such choice",
        "OpenAI": "use engine.runtime.args",
    }
    for type_, reason in reasons.items():
        assert made["refused"][type_] == [
            f"spec.engine.turbo: is True: engine.turbo must be false with engine.runtime.type {type_}: {reason}"
        ]
    (line,) = made["owned"]
    assert line.endswith("--compact-at must not be here: use engine.memory.compactionPercent")
    (line,) = made["spelled"]
    assert line.endswith("--compaction_share must not be here: use engine.memory.compactionPercent")


def test_the_pages_are_up_to_date_and_get_the_new_rows(source: Path) -> None:
    run(ROOT, str(ROOT / "scripts/doc-tables"), "--check")
    run(source, str(source / "scripts/doc-tables"))
    lines = (source / "docs/engines.md").read_text().splitlines()
    for text in ("`--compact-at`", "`--compaction_share`", "`$(PATERNOSTER_COMPACTION)`"):
        assert f"| `engine.memory.compactionPercent` | {text} |" in lines
    assert "| `engine.turbo` | must be `false`: vLLM has no such choice |" in lines


@pytest.mark.parametrize("engine", [each for each in RuntimeType if each is not RuntimeType.PATERNOSTER])
def test_no_engine_drops_a_setting_in_silence(engine: RuntimeType) -> None:
    for row, made in list_translations(engine):
        assert made.flag or made.variable or made.note or made.other_flags or made.refused
        assert not made.refused or (row.field is not None and row.field.path), "a refusal names a field"


def test_a_field_that_no_type_declares_is_said_by_one_setting() -> None:
    paths = [row.field.path for row in list_rows(EngineArgs) if row.field is not None and not row.field.by_hand]
    made = [path for path in paths if path]
    assert len(made) == len(set(made))
