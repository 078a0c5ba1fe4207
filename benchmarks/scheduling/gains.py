"""What each scheduling idea gains: the tables of ``results.md``.

    python benchmarks scheduling.gains --profile here.yaml --trace azure_llm_2023_conv.csv --json scheduling.json
    python benchmarks scheduling.gains modes sharing

The engine's own scheduler and step loop run on a virtual clock; a step takes what the profile says that it takes
(``paternoster bench calibrate`` measures one). So every figure repeats exactly, on a busy machine too, and none of
them includes HTTP, sampling or the time that scheduling itself takes.
"""

import argparse
import json
from pathlib import Path

from paternoster_simulator.profile import ProfileError, load_profile
from paternoster_traces.synthetic import generate_rows
from paternoster_traces.trace import TraceError, read_trace
from scheduling import memory, modes, prompts, sharing
from scheduling.experiment import Context
from scheduling.virtual_engine import Machine

EXPERIMENTS = {"modes": modes.run, "memory": memory.run, "prompts": prompts.run, "sharing": sharing.run}
SYNTHETIC_ROWS = 10_000
BLOCK_COPY_SECONDS = 60e-6
"""A block of 32 tokens of 23,040 bytes each, read and written at the 24.6 GB/s measured on two cores of a Xeon."""


def main() -> int:
    parser = argparse.ArgumentParser(description="What each scheduling idea gains, on a virtual clock.")
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=f"of {', '.join(EXPERIMENTS)} (all)")
    parser.add_argument(
        "--profile",
        default="smollm2-135m-cpu2",
        help="hardware profile: a name, or a YAML file (default: SmolLM2 135M in bfloat16, measured on two cores)",
    )
    parser.add_argument("--trace", metavar="FILE", help="trace that lengths are drawn from (default: synthetic)")
    parser.add_argument(
        "--block-copy-seconds",
        type=float,
        default=BLOCK_COPY_SECONDS,
        metavar="S",
        help="one KV block to host memory, or back (default: %(default)s)",
    )
    parser.add_argument("--json", metavar="FILE", help="write every table")
    options = parser.parse_args()
    for name in options.experiments:
        if name not in EXPERIMENTS:
            parser.error(f"experiment is {name!r}: must be one of {', '.join(EXPERIMENTS)}")
    if not options.block_copy_seconds >= 0:
        parser.error(f"block-copy-seconds is {options.block_copy_seconds}: must be at least 0")
    try:
        profile = load_profile(options.profile)
        rows = read_trace(options.trace) if options.trace else generate_rows(SYNTHETIC_ROWS)
    except (ProfileError, TraceError) as error:
        parser.error(str(error))
    machine = Machine.of(profile, options.block_copy_seconds)
    context = Context(machine, rows, profile.objective.ttft_ms / 1000, profile.objective.itl_ms / 1000)
    tables = []
    for name in options.experiments or EXPERIMENTS:
        for table in EXPERIMENTS[name](context):
            tables.append(table)
            print(table.markdown(), end="\n\n", flush=True)
    if options.json:
        document = {"profile": profile.model_dump(), "tables": [table.document() for table in tables]}
        Path(options.json).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0
