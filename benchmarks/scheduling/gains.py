"""Measure the gain of each scheduling idea: the tables of ``results.md``.

    python benchmarks scheduling.gains --profile here.yaml --trace azure_llm_2023_conv.csv --json scheduling.json
    python benchmarks scheduling.gains modes sharing

The engine's own scheduler and step loop run on a virtual clock; a step takes what the profile says that it takes
(``paternoster bench calibrate`` measures one). So every figure repeats exactly, on a busy machine too, and none of
them includes HTTP, sampling or the time that scheduling itself takes.
"""

from harness.arguments import RunnerParser
from harness.results import write_json
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
    parser = RunnerParser(__doc__, json="write every table")
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=f"of {', '.join(EXPERIMENTS)} (all)")
    parser.add_argument("--profile", default="smollm2-135m-cpu2", metavar="NAME|FILE", help="default: %(default)s")
    parser.add_argument("--trace", metavar="FILE", help="trace that lengths are drawn from (default: synthetic)")
    parser.add_number("--block-copy-seconds", BLOCK_COPY_SECONDS, "one KV block to host memory, or back")
    options = parser.parse_args()
    for name in options.experiments:
        if name not in EXPERIMENTS:
            parser.error(f"experiment is {name!r}: must be one of {', '.join(EXPERIMENTS)}")
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
    write_json(options.json, {"profile": profile.model_dump(), "tables": [table.document() for table in tables]})
    return 0
