"""The manifests of examples/models: what a replica holds and carries, and the text that states it."""

import json
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch

from paternoster_engine.fit.memory import (
    MemoryFit,
    count_parameters,
    find_fits,
    sequence_bytes,
    token_bytes,
    window_bytes,
)
from paternoster_engine.fit.profile import derived_profile
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.families.read import config_from_hf
from paternoster_engine.runner.kv_pool import kv_block_bytes
from paternoster_operator.api.manifest import load_resources
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_simulator.arrivals import constant_rate, generate_requests
from paternoster_simulator.outcome.outcome import SimulationOutcome
from paternoster_simulator.policies.registry import make_policy
from paternoster_simulator.profile import Profile, load_profile, parse_profile
from paternoster_simulator.settings import FleetSettings
from paternoster_simulator.simulation import simulate_fleet
from paternoster_traces.workload import Limits

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "examples/models"
README = FOLDER / "README.md"
CONFIGS = ROOT / "tests/catalogue/configs"
"""The sizes of each model's config.json, and nothing else of it."""
TABLE = ("<!-- table: scripts/catalogue writes it -->\n", "<!-- end of the table -->")
GPU_OF = {
    "NVIDIA-L4": "L4",
    "NVIDIA-L40S": "L40S",
    "NVIDIA-A100-SXM4-80GB": "A100 80 GB",
    "NVIDIA-H100-80GB-HBM3": "H100",
}
"""What NVIDIA's feature discovery labels nodes with -> what ``paternoster fit`` calls it."""
WITHOUT_GPU = "smollm2-135m-cpu2"
"""The profile of a manifest without GPUs; it was measured."""
SECONDS = 120
MIN_ATTAINMENT = 0.95
"""Share of requests within the objective: of 95 of 100 it speaks."""
GIB, MIB, KIB = 2**30, 2**20, 2**10
_RATE = re.compile(r"--rate ([0-9.]+)")


@dataclass
class Entry:
    """One manifest."""

    path: Path
    resource: LLMDeployment
    config: ModelConfig
    outcomes: dict[float, SimulationOutcome] = field(default_factory=dict)
    """Outcomes by rate."""

    @cached_property
    def gpu(self) -> str | None:
        """None for a fleet on CPUs."""
        label = self.resource.spec.node_selector.get("nvidia.com/gpu.product")
        return None if label is None else GPU_OF[label]

    @cached_property
    def fit(self) -> MemoryFit | None:
        """None on CPUs. Raises ``ValueError`` where the model does not fit."""
        spec = self.resource.spec
        share = spec.engine.memory.gpu_utilization_percent / 100
        for fit in find_fits(self.config, torch.bfloat16, share):
            if (fit.gpu, fit.count) == (self.gpu, spec.resources.gpu.count):
                return fit
        if self.gpu is not None:
            raise ValueError(f"{self.path.name}: does not fit on {spec.resources.gpu.count} x {self.gpu}")
        return None

    @cached_property
    def profile(self) -> Profile:
        if self.fit is None:
            return load_profile(WITHOUT_GPU)
        derived = derived_profile(self.config, self.fit, torch.bfloat16, usd_per_gpu_hour=0.0)
        return parse_profile(derived.to_yaml(), where=self.path.name)

    @property
    def tokens(self) -> int:
        """That the KV pool of a replica holds, in sequences of the longest length."""
        return self._pool * self.length // sequence_bytes(self.config, self.length, torch.bfloat16)

    @property
    def sequences(self) -> int:
        """Sequences of the longest length that it holds."""
        return self.tokens // self.length

    @property
    def length(self) -> int:
        """Tokens of the longest sequence."""
        longest = self.resource.spec.engine.max_model_len
        assert longest is not None
        return longest

    @property
    def _pool(self) -> int:
        """Bytes of the KV pool."""
        profile = self.profile
        return profile.kv_blocks * kv_block_bytes(self.config, profile.kv_block_size, torch.bfloat16)

    @property
    def replicas(self) -> int:
        autoscaling = self.resource.spec.autoscaling
        assert autoscaling is not None
        return autoscaling.min_replicas

    def carried(self, rate: float) -> SimulationOutcome:
        """What becomes of ``rate`` requests a second; as ``paternoster simulate --policy fixed`` has it."""
        if rate not in self.outcomes:
            spec = self.resource.spec
            limits = Limits(max_total=spec.engine.max_model_len)
            self.outcomes[rate] = simulate_fleet(
                self.profile,
                generate_requests(constant_rate(rate), duration=SECONDS, seed=0, limits=limits),
                make_policy("fixed", spec, self.profile),
                start_replicas=self.replicas,
                duration=float(SECONDS),
                seed=0,
                settings=FleetSettings.from_spec(spec, self.profile),
            )
        return self.outcomes[rate]

    def meets_objective(self, rate: float) -> bool:
        return self.carried(rate).slo_attainment >= MIN_ATTAINMENT

    def highest_rate(self) -> float:
        """To two digits, by halving."""
        low, high = 0, 1
        while self.meets_objective(_rate(high)):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.meets_objective(_rate(middle)) else (low, middle)
        if low == 0:
            raise ValueError(f"{self.path.name}: meets its objective at no rate")
        return _rate(low)

    def is_highest(self, rate: float) -> bool:
        """Whether ``rate`` is carried, and a tenth more is not."""
        return self.meets_objective(rate) and not self.meets_objective(1.1 * rate)

    def written_rate(self) -> float | None:
        """That of the command in the manifest's head."""
        found = _RATE.search(self.path.read_text())
        return float(found[1]) if found else None


def _rate(step: int) -> float:
    """Requests a second: tenths up to 5, halves above."""
    return step / 10 if step <= 50 else 5 + (step - 50) / 2


def entries() -> Iterator[Entry]:
    """Entries of models that generate: what replicas of one that embeds carry is not simulated."""
    for path in sorted(FOLDER.glob("*.yaml")):
        (resource,) = load_resources(path)
        if resource.spec.model.task != "embed":
            values = json.loads((CONFIGS / f"{path.stem}.json").read_text())
            yield Entry(path, resource, config_from_hf(values, path.stem))


def manifest_text(entry: Entry, rate: float) -> str:
    """The manifest with its head: the first paragraph as it is, then what is worked out."""
    head, _, body = entry.path.read_text().partition("apiVersion:")
    described = textwrap.wrap(_prose(entry, rate), 117, break_long_words=False)
    lines = [*described, *(f"  {line}" for line in _commands(entry, rate))]
    return head.partition("#\n")[0] + "#\n" + "".join(f"# {line}\n" for line in lines) + "apiVersion:" + body


def _prose(entry: Entry, rate: float) -> str:
    outcome = entry.carried(rate)
    ttft, itl = (outcome.find_percentiles(name)["p95"] for name in ("ttft", "itl"))
    carrying = "One replica carries" if entry.replicas == 1 else f"{entry.replicas} replicas carry"
    source = "were measured (a Xeon with AMX)" if entry.fit is None else "follow from data sheets, **not measured**"
    return (
        f"Weights {count_parameters(entry.config) * 2 / GIB:.1f} GiB in bfloat16; "
        f"{token_bytes(entry.config, torch.bfloat16) / KIB:g} KiB of KV cache a token{_in_windows(entry)}, room for "
        f"{entry.tokens:,} tokens in {entry.sequences} sequences of {entry.length:,}. "
        f"{carrying} {rate:g} requests/s of chat within the objective: {tokens_per_second(outcome):,.0f} output "
        f"tokens/s, for 95 of 100 requests the first token within {ttft:,.0f} ms and {itl:,.0f} ms a token. "
        f"Simulated, with times of steps that {source}:"
    )


def _in_windows(entry: Entry) -> str:
    windowed = window_bytes(entry.config, entry.length, torch.bfloat16)
    return f" and at most {windowed / MIB:.0f} MiB a sequence in layers with a window" if windowed else ""


def _commands(entry: Entry, rate: float) -> Iterator[str]:
    """What gives the same figures."""
    profile = WITHOUT_GPU
    if entry.fit is not None:
        profile = f"{entry.path.stem}.profile.yaml"
        source, gpu = entry.resource.spec.model.source, shlex.quote(entry.fit.gpu)
        yield f"paternoster fit {source} --gpu {gpu} --count {entry.fit.count} --profile {profile}"
    yield f"paternoster simulate -f examples/models/{entry.path.name} --profile {profile} \\"
    yield f"  --policy fixed --rate {rate:g} --duration {SECONDS}"


def tokens_per_second(outcome: SimulationOutcome) -> float:
    return outcome.totals.generation_tokens / outcome.seconds


def table(found: list[Entry]) -> str:
    """Markdown, one row a manifest, by the rate that stands in it."""
    rows = [
        "| manifest | a replica | weights, GiB | KV cache, KiB a token | tokens in the KV cache | of maxModelLen | "
        "replicas | requests/s | output tokens/s | first token, p95 ms | each token, p95 ms |",
        "|" + "---|" * 11,
    ]
    for entry in found:
        rate = entry.written_rate()
        assert rate is not None
        outcome = entry.carried(rate)
        device = "2 CPUs" if entry.fit is None else f"{entry.fit.count} x {entry.gpu}"
        cells = (
            f"[{entry.path.stem}]({entry.path.name})",
            device,
            f"{count_parameters(entry.config) * 2 / GIB:.1f}",
            f"{token_bytes(entry.config, torch.bfloat16) / KIB:g}",
            f"{entry.tokens:,}",
            f"{entry.sequences} x {entry.length:,}",
            f"{entry.replicas}",
            f"{rate:g}",
            f"{tokens_per_second(outcome):,.0f}",
            f"{outcome.find_percentiles('ttft')['p95']:,.0f}",
            f"{outcome.find_percentiles('itl')['p95']:,.0f}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"
