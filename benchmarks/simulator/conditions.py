"""What both sides are given: the engine's settings, the fleet's manifest, the requests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.local_fleet import manifest
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_operator.api.manifest import parse_resource
from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_traces import workload
from paternoster_traces.trace import TraceRow

NAME = "reality"
LIMITS = workload.Limits(max_prompt=256, min_output=64, max_output=192)


@dataclass(frozen=True, slots=True)
class Conditions:
    """One fleet. The prefix cache is off: the trace does not say which prompts are alike."""

    replicas: int = 2
    max_num_seqs: int = 12
    max_model_len: int = 1024
    max_batched_tokens: int = 256
    kv_cache_mib: int = 48
    threads: int = 1
    itl_limit_ms: int = 400
    """Time between two tokens that the law keeps: below what a step of ``max_batched_tokens`` takes here."""

    @property
    def engine_args(self) -> EngineArgs:
        return EngineArgs(
            threads=self.threads,
            max_num_seqs=self.max_num_seqs,
            max_model_len=self.max_model_len,
            max_batched_tokens=self.max_batched_tokens,
            kv_cache_memory=self.kv_cache_mib * 2**20,
            prefix_cache=False,
        )

    def manifest(self, *, law: bool) -> dict[str, Any]:
        """The fleet as a document: replicas fixed; the cap and the tokens of a step too, unless ``law``."""
        concurrency = {
            "mode": "Auto", "objective": "PreemptionRate", "min": 2, "tokenBudget": {"min": 32},
        }  # fmt: skip
        limited = {"concurrency": concurrency, "slo": {"itlP95Milliseconds": self.itl_limit_ms}}
        engine = {
            "maxNumSeqs": self.max_num_seqs, "maxModelLen": self.max_model_len, "prefixCache": False,
            "maxBatchedTokens": self.max_batched_tokens, "kvCacheMemory": f"{self.kv_cache_mib}Mi",
        }  # fmt: skip
        cpu = {"limits": {"cpu": str(self.threads)}}
        spec: dict[str, Any] = {"model": {"source": self.engine_args.model}, "engine": engine, "resources": cpu}
        return manifest(NAME, **spec, replicas=self.replicas, **(limited if law else {}))

    def resource(self, *, law: bool) -> LLMDeployment:
        return parse_resource(self.manifest(law=law))


def requests(rows: Sequence[TraceRow], count: int, *, seed: int) -> list[TraceRow]:
    """``count`` rows drawn from a trace and clipped to what this fleet can serve, all at 0 s."""
    return [LIMITS.clip_row(replace(row, prefix_blocks=())) for row in workload.sample_rows(rows, count, seed=seed)]
