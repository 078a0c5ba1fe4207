"""A replica on GPUs that were not measured, as a hardware profile for ``paternoster simulate``. Pure."""

import torch

from paternoster_engine.bench.calibration.hardware_profile import HardwareProfile
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.fit.gpus import GPUS
from paternoster_engine.fit.memory import MemoryFit, rank_bytes
from paternoster_engine.fit.step_cost import step_cost
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.runner.kv_pool import kv_block_bytes

BLOCK_SIZE = 32
WATERMARK_PERCENT = 1
MAX_NUM_SEQS = 256
MAX_BATCHED_TOKENS = 8192
LOAD_BYTES_PER_SECOND = 1e9
"""Rate at which each rank reads from a volume in the cluster. An assumption, as all of a start."""
SCHEDULE_SECONDS, PULL_SECONDS, PROCESS_SECONDS, WARM_SECONDS, JITTER = 3.0, 30.0, 10.0, 15.0, 0.2
TTFT_MS, ITL_MS = 2000.0, 100.0


def derived_profile(
    config: ModelConfig,
    fit: MemoryFit,
    dtype: torch.dtype,
    *,
    usd_per_gpu_hour: float,
    kv_dtype: torch.dtype = torch.bfloat16,
    engine: str = "Paternoster",
) -> HardwareProfile:
    """``fit`` as a profile; sizes that a manifest does not say are those of an engine on a GPU."""
    blocks = fit.memory // kv_block_bytes(config, BLOCK_SIZE, kv_dtype)
    return HardwareProfile(
        name=f"{config.name} on {fit.count} x {fit.gpu}",
        source="derived from data sheets by `paternoster fit`, not measured",
        config=SchedulerConfig(
            max_num_seqs=MAX_NUM_SEQS,
            max_batched_tokens=MAX_BATCHED_TOKENS,
            max_model_len=config.context_length,
            block_size=BLOCK_SIZE,
            num_blocks=blocks,
            windows=config.kv_windows,
            watermark_blocks=blocks * WATERMARK_PERCENT // 100,
        ),
        gpus=fit.count,
        usd_per_gpu_hour=usd_per_gpu_hour,
        watermark_percent=WATERMARK_PERCENT,
        step=step_cost(config, GPUS[fit.gpu], fit.count, dtype, kv_dtype),
        schedule_seconds=SCHEDULE_SECONDS,
        pull_seconds=PULL_SECONDS,
        load_seconds=PROCESS_SECONDS + rank_bytes(config, fit.count, dtype) / LOAD_BYTES_PER_SECOND,
        warm_seconds=WARM_SECONDS,
        jitter=JITTER,
        ttft_ms=TTFT_MS,
        itl_ms=ITL_MS,
        engine=engine,
    )
