"""Runs an experiment: ``python benchmarks EXPERIMENT.RUNNER``; without arguments it lists them.

Python puts this folder on its path, so experiments import each other by name; nothing else edits the path. The
packages measured are those of this checkout, installed or not.
"""

import ast
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = ("common", "operator", "engine", "kernels", "gateway", "simulator", "e2e")
RUNNERS = (
    "clients.agents",
    "clients.run",
    "control.compare",
    "control.foresight",
    "control.live_cap",
    "control.real_pair",
    "control.sensitivity",
    "control.token_budget",
    "engine.adapters",
    "engine.attention",
    "engine.batch_invariant_cost",
    "engine.chats_beside_embeddings",
    "engine.commits",
    "engine.decode_roofline",
    "engine.embeddings",
    "engine.idle",
    "engine.logprobs",
    "engine.million_requests",
    "engine.offline_throughput",
    "engine.quantization",
    "engine.speculation",
    "engine.structured_output",
    "engines.overhead",
    "engines.vllm",
    "engines.vllm_caps",
    "engines.vllm_profile",
    "gateway.cost",
    "gateway.engine_flood",
    "gateway.index_size",
    "gateway.open_streams",
    "gateway.prefix",
    "gateway.prefix_simulated",
    "gateway.prompt_cost",
    "gateway.tenant_flood",
    "gpu.check",
    "gpu.compile",
    "hostile.attackers.fuzz_gateway",
    "hostile.attackers.fuzz_pods",
    "hostile.fuzz",
    "hostile.neighbours",
    "hostile.pieces",
    "hostile.silence",
    "hostile.soak",
    "peers.compare",
    "scheduling.gains",
    "simulator.noisy_steps",
    "simulator.reality",
    "simulator.speed",
    "simulator.vllm_reports",
    "streams.cost",
    "streams.faults",
    "streams.overload",
    "streams.survive",
)


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print("python benchmarks RUNNER [flags]; RUNNER --help tells its flags")
        for runner in RUNNERS:
            print(f"  {runner:<28} {summary(runner)}")
        return 0
    if name not in RUNNERS:
        print(f"benchmarks: runner is {name!r}: must be one of {', '.join(RUNNERS)}", file=sys.stderr)
        return 2
    sys.path[1:1] = [str(HERE.parent / package) for package in PACKAGES]
    sys.argv[:2] = [f"benchmarks {name}"]
    return int(importlib.import_module(name).main())


def summary(runner: str) -> str:
    """The first line of its docstring, read without importing what it needs."""
    text = (HERE / runner.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
