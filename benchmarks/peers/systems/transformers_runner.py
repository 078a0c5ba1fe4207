"""Answers requests in process with Hugging Face transformers. Runs in the environment of transformers.

    python transformers_runner.py static|continuous FOLDER THREADS

Reads one JSON line a run, ``{"concurrency": N, "requests": [{"index", "prompt", "max_tokens"}, ...]}``, and writes one
for each request that has ended, ``{"index", "start", "times"}``, in seconds of ``time.perf_counter``. ``{"ready"}`` is
the first line. A static batch is of ``concurrency`` requests, padded on the left, and the next begins when its last has
ended.
"""

import json
import sys
import time
from collections import deque
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    ContinuousBatchingConfig,
    GenerationConfig,
    StoppingCriteria,
    StoppingCriteriaList,
)

PAD = 0
CONTINUOUS = ContinuousBatchingConfig(page_size=256, num_blocks=256, max_batch_tokens=1024, allow_block_sharing=False)


def send_message(**message: Any) -> None:
    print(json.dumps(message), flush=True)


class Lengths(StoppingCriteria):
    """Ends each row at its own length, and notes when each of its tokens came."""

    def __init__(self, wanted: list[int]) -> None:
        self.wanted = wanted
        self.times: list[list[float]] = [[] for _ in wanted]

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs: Any) -> torch.Tensor:
        now = time.perf_counter()
        for times, wanted in zip(self.times, self.wanted, strict=True):
            if len(times) < wanted:
                times.append(now)
        return torch.tensor([len(t) >= wanted for t, wanted in zip(self.times, self.wanted, strict=True)])


def static(model: Any, requests: list[dict[str, Any]], concurrency: int) -> None:
    for begin in range(0, len(requests), concurrency):
        batch = requests[begin : begin + concurrency]
        longest = max(len(request["prompt"]) for request in batch)
        padding = [longest - len(request["prompt"]) for request in batch]
        ids = torch.tensor([[PAD] * n + r["prompt"] for n, r in zip(padding, batch, strict=True)])
        mask = torch.tensor([[0] * n + [1] * (longest - n) for n in padding])
        lengths = Lengths([request["max_tokens"] for request in batch])
        config = GenerationConfig(max_new_tokens=max(lengths.wanted), do_sample=False, pad_token_id=PAD)
        start = time.perf_counter()
        with torch.inference_mode():
            model.generate(
                ids,
                attention_mask=mask,
                generation_config=config,
                stopping_criteria=StoppingCriteriaList([lengths]),
            )
        for request, times in zip(batch, lengths.times, strict=True):
            send_message(index=request["index"], start=start, times=times)


def continuous(manager: Any, requests: list[dict[str, Any]], concurrency: int) -> None:
    coming = deque(requests)
    live: dict[str, tuple[dict[str, Any], float, list[float]]] = {}
    while coming or live:
        while coming and len(live) < concurrency:
            request = coming.popleft()
            start = time.perf_counter()
            name = manager.add_request(
                request["prompt"], max_new_tokens=request["max_tokens"], streaming=True, eos_token_id=-1
            )
            live[name] = request, start, []
        result = manager.get_result(timeout=1)
        if result is None:
            if not manager.is_running():
                raise RuntimeError("continuous batching has ended by itself")
            continue
        request, start, times = live[result.request_id]
        if result.error:
            raise RuntimeError(result.error)
        times += [time.perf_counter()] * (len(result.generated_tokens) - len(times))
        if result.is_finished():
            send_message(index=request["index"], start=start, times=times)
            del live[result.request_id]


def main() -> int:
    mode, folder, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    # Every request has a length of its own: nothing ends one early.
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    manager = None
    if mode == "continuous":
        config = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=PAD, max_new_tokens=256)
        manager = model.init_continuous_batching(generation_config=config, continuous_batching_config=CONTINUOUS)
        manager.start()
    send_message(ready=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        if manager is None:
            static(model, wanted["requests"], wanted["concurrency"])
        else:
            continuous(manager, wanted["requests"], wanted["concurrency"])
    if manager is not None:
        manager.stop(block=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
