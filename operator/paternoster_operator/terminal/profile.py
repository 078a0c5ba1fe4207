"""A fleet's own numbers as a hardware profile of the simulator: what its status has learnt of one replica. Pure."""

from collections.abc import Mapping
from typing import Any

import yaml

SHORTEST_STEP_SECONDS = 1e-6
"""Shortest step with nothing in it: a fit may find none, and a profile must have some."""
UNSET_TTFT_MS, UNSET_ITL_MS = 2000, 100
"""Objective where the spec names none."""


def hardware_profile(document: Mapping[str, Any]) -> str:
    """YAML that ``paternoster simulate --profile`` reads.

    ``document`` is an LLMDeployment with its status. Raises ``ValueError`` where the status does not know enough yet.
    """
    metadata, spec, status = document["metadata"], document.get("spec", {}), document.get("status", {})
    named = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
    model, budget = status.get("replicaModel"), status.get("tokenBudget", {})
    if not model:
        raise ValueError(
            f"status.replicaModel of {named} is not set: engines must have answered requests for half a minute"
        )
    for field, value in (
        ("tokenBudget.capacity", budget.get("capacity", 0)),
        ("replicaModel.kvBlocks", model.get("kvBlocks", 0)),
        ("replicaModel.maxModelLen", model.get("maxModelLen", 0)),
    ):
        if value < 1:
            raise ValueError(f"status.{field} of {named} is {value}: must be at least 1; is an engine an older one?")
    slo, gpus = spec.get("slo", {}), spec.get("resources", {}).get("gpu", {}).get("count", 0)
    profile = {
        "name": metadata["name"],
        "source": f"fitted live to the engines of {named}; explains {model['fitPercent']} % of how their steps differ",
        "gpus_per_replica": gpus,
        "usd_per_gpu_hour": float((spec.get("cost") or {}).get("gpuHour", 0)),
        "kv_blocks": model["kvBlocks"],
        "kv_block_size": model["kvBlockSize"],
        "max_num_seqs": status["concurrency"]["capacity"],
        "max_batched_tokens": budget["capacity"],
        "max_model_len": model["maxModelLen"],
        "step": {
            "fixed_seconds": max(float(model["fixedSeconds"]), SHORTEST_STEP_SECONDS),
            "per_prefill_token_seconds": float(model["perPrefillTokenSeconds"]),
            "per_decode_sequence_seconds": float(model["perDecodeSequenceSeconds"]),
            "per_kv_token_seconds": float(model["perKvTokenSeconds"]),
            "per_prefill_pair_seconds": float(model["perPrefillPairSeconds"]),
        },
        "startup": _startup_phases(status.get("startup")),
        "objective": {
            "ttft_ms": slo.get("ttftP95Milliseconds") or UNSET_TTFT_MS,
            "itl_ms": slo.get("itlP95Milliseconds") or UNSET_ITL_MS,
        },
    }
    return yaml.safe_dump(profile, sort_keys=False)


def _startup_phases(seen: Mapping[str, Any] | None) -> dict[str, int]:
    """A start is seen as a whole, so it is one phase."""
    whole = 0 if seen is None else seen["averageSeconds"]
    return {"schedule_seconds": 0, "pull_seconds": 0, "load_seconds": whole, "warm_seconds": 0}
