"""The hardware that fleets of tests run on: small enough to fill, with prices that are easy to add up."""

from paternoster_simulator.profile import Objective, Profile, Startup, StepSeconds

SMALL = Profile(
    name="small",
    source="made for tests",
    gpus_per_replica=2,
    usd_per_gpu_hour=1.5,
    kv_blocks=120,
    kv_block_size=16,
    max_num_seqs=16,
    max_batched_tokens=256,
    max_model_len=512,
    step=StepSeconds(
        fixed_seconds=0.02,
        per_prefill_token_seconds=1e-4,
        per_decode_sequence_seconds=1e-3,
        per_kv_token_seconds=1e-6,
    ),
    startup=Startup(schedule_seconds=1, pull_seconds=2, load_seconds=3, warm_seconds=4),
    objective=Objective(ttft_ms=1000, itl_ms=100),
)
