"""A hardware profile as YAML, in the form that ``paternoster simulate --profile`` reads."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paternoster_engine.bench.calibration.step_cost import StepCostFit
from paternoster_engine.core.config import SchedulerConfig

Scalar = str | int | float


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """One replica: on this machine, or as it is expected to be on another."""

    name: str
    source: str
    """How, when and on what it was measured, or what it follows from."""
    config: SchedulerConfig
    gpus: int
    usd_per_gpu_hour: float
    """Price of the replica where there is no GPU."""
    watermark_percent: int
    step: StepCostFit
    load_seconds: float
    """From the start of the process until the model is there."""
    warm_seconds: float
    """The first step."""
    ttft_ms: float
    itl_ms: float
    schedule_seconds: float = 0
    """On one machine nothing is scheduled or pulled."""
    pull_seconds: float = 0
    jitter: float = 0
    engine: str = "Paternoster"
    """Type of ``engine.runtime`` whose reports a simulated replica has."""

    def to_document(self) -> dict[str, Scalar | Sequence[int | None] | dict[str, Scalar]]:
        config = self.config
        return {
            "name": self.name,
            "source": self.source,
            "engine": self.engine,
            "gpus_per_replica": self.gpus,
            "usd_per_gpu_hour": self.usd_per_gpu_hour,
            "kv_blocks": config.num_blocks,
            "kv_block_size": config.block_size,
            "kv_windows": config.windows,
            "max_num_seqs": config.max_num_seqs,
            "max_batched_tokens": config.max_batched_tokens,
            "max_model_len": config.max_model_len,
            "watermark_percent": self.watermark_percent,
            "step": asdict(self.step),
            "startup": {
                "schedule_seconds": self.schedule_seconds,
                "pull_seconds": self.pull_seconds,
                "load_seconds": round(self.load_seconds, 3),
                "warm_seconds": round(self.warm_seconds, 3),
                "jitter": self.jitter,
            },
            "objective": {"ttft_ms": self.ttft_ms, "itl_ms": self.itl_ms},
        }

    def to_yaml(self, comments: Sequence[str] = ()) -> str:
        return "".join(f"# {line}".rstrip() + "\n" for line in comments) + _write_mapping(self.to_document())


def _write_mapping(document: Mapping[str, Any], indent: str = "") -> str:
    lines = ""
    for key, value in document.items():
        if isinstance(value, Mapping):
            lines += f"{indent}{key}:\n{_write_mapping(value, indent + '  ')}"
        else:
            lines += f"{indent}{key}: {_write_scalar(value)}\n"
    return lines


def _write_scalar(value: Scalar) -> str:
    """Floats with a point and a signed exponent, or YAML 1.1 takes them for text; text in double quotes."""
    if isinstance(value, tuple):
        return "[" + ", ".join("null" if item is None else str(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + "".join(_escape_character(character) for character in value) + '"'
    return f"{value:.4e}" if isinstance(value, float) and 0 < abs(value) < 0.1 else str(value)


def _escape_character(character: str) -> str:
    """JSON's escapes would cut a character above U+FFFF in two."""
    return character if " " <= character <= "~" and character not in '"\\' else f"\\U{ord(character):08x}"
