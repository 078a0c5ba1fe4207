"""A hardware profile: what one replica is made of, how long its steps and its start take, and what it costs."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paternoster_simulator.cost import StepCost

EngineName = Literal["Paternoster", "VLLM"]
"""Types of ``engine.runtime`` whose reports a simulated replica can have."""


class ProfileError(ValueError):
    """A profile that cannot be used; the text names file, field and value."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StepSeconds(_Part):
    """Seconds of a step; see :class:`paternoster_simulator.cost.StepCost`."""

    fixed_seconds: float = Field(gt=0)
    """Any step: weights read once, kernels launched."""
    per_prefill_token_seconds: float = Field(ge=0)
    per_decode_sequence_seconds: float = Field(ge=0)
    per_kv_token_seconds: float = Field(ge=0)
    """For each token of context that attention reads."""
    per_prefill_pair_seconds: float = Field(default=0, ge=0)
    """For each pair of prefilled token and token of its context."""


class Startup(_Part):
    """Seconds from a pod's creation until it serves."""

    schedule_seconds: float = Field(ge=0)
    pull_seconds: float = Field(ge=0)
    load_seconds: float = Field(ge=0)
    warm_seconds: float = Field(ge=0)
    jitter: float = Field(default=0, ge=0, le=1)
    """Each phase takes 1 - jitter to 1 + jitter times its length."""

    @property
    def phases(self) -> tuple[float, float, float, float]:
        return self.schedule_seconds, self.pull_seconds, self.load_seconds, self.warm_seconds


class Objective(_Part):
    """What a request's user expects."""

    ttft_ms: float = Field(gt=0)
    """Time to first token."""
    itl_ms: float = Field(gt=0)
    """Mean time between tokens."""


class Profile(_Part):
    """One model on one kind of machine."""

    name: str
    source: str
    """Where the figures come from."""
    engine: EngineName = "Paternoster"
    """What replicas report is what an engine of this type reports."""
    gpus_per_replica: int = Field(ge=0)
    usd_per_gpu_hour: float = Field(ge=0)
    """Price of a replica where there is no GPU."""
    kv_blocks: int = Field(ge=1)
    kv_block_size: int = Field(ge=1, le=1024)
    kv_windows: tuple[int | None, ...] = (None,)
    """Attention window of each group of layers, as the engine's scheduler has it; null for one that sees all."""
    max_num_seqs: int = Field(ge=1, le=4096)
    max_batched_tokens: int = Field(ge=1)
    max_model_len: int = Field(ge=16)
    watermark_percent: int = Field(default=1, ge=0, le=50)
    """Share of the KV pool kept free when admitting, as the engine's setting of that name."""
    step: StepSeconds
    startup: Startup
    objective: Objective

    @property
    def cost(self) -> StepCost:
        return StepCost.from_seconds(**self.step.model_dump())

    @property
    def usd_per_replica_hour(self) -> float:
        return self.usd_per_gpu_hour * max(self.gpus_per_replica, 1)


def profile_names() -> list[str]:
    """Profiles that come with the package."""
    folder = files("paternoster_simulator").joinpath("profiles")
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_profile(name: str | Path) -> Profile:
    """A profile by name, or from a YAML file; raises :class:`ProfileError`."""
    if str(name) in profile_names():
        text = files("paternoster_simulator").joinpath("profiles", f"{name}.yaml").read_text(encoding="utf-8")
        return parse_profile(text, where=f"profile {name}")
    path = Path(name)
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ProfileError(f"profile is {str(name)!r}: must be a YAML file or one of {', '.join(profile_names())}")
    try:
        return parse_profile(path.read_text(encoding="utf-8"), where=str(path))
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: is not a text file in UTF-8") from error


def parse_profile(text: str, *, where: str) -> Profile:
    """A profile out of YAML text; ``where`` begins each line of a :class:`ProfileError`."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ProfileError(f"{where}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ProfileError(f"{where}: is {type(document).__name__}: must be a mapping")
    try:
        return Profile.model_validate(document)
    except ValidationError as error:
        raise ProfileError("\n".join(f"{where}: {_describe_fault(dict(fault))}" for fault in error.errors())) from error


def _describe_fault(fault: Mapping[str, Any]) -> str:
    field = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "missing":
        return f"{field}: is missing: it is required"
    if fault["type"] == "extra_forbidden":
        return f"{field}: is unknown"
    wanted = fault["msg"].replace("Input should be", "must be")
    return f"{field}: is {fault['input']!r}: {wanted[:1].lower() + wanted[1:]}"
