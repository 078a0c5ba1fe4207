"""What grammars cost: output tokens per second with and without, and what others see beside them, in turns.

    python benchmarks engine.structured_output --concurrency 64 --repeats 3

Turn by turn, so that whatever else the machine does falls on all alike: no request has a grammar, all have one, every
other one has, and all have tools that they may call and do not. The time between tokens is that of requests without a
grammar, where there are some.
"""

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from harness.arguments import RunnerParser
from harness.results import write_json
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.engine import Engine
from paternoster_engine.sampling.grammars.free_text import FreeText
from paternoster_engine.sampling.grammars.grammar import Grammar
from paternoster_engine.sampling.grammars.lazy import LazyMatcher, SeenTokens
from paternoster_engine.sampling.grammars.source import GrammarSource, to_grammar
from paternoster_engine.sampling.grammars.vocabulary import Vocabulary
from paternoster_traces.prompts import PromptSource, read_text

RECORD = {
    "name": {"type": "string"},
    "age": {"type": "integer"},
    "tags": {"type": "array", "items": {"type": "string"}},
}
SCHEMA = {"type": "array", "items": {"type": "object", "properties": RECORD, "required": [*RECORD]}, "minItems": 1000}
"""So long that no answer ends before its tokens are spent."""
KINDS = ("none", "all", "half", "tools")


@dataclass(frozen=True)
class Turn:
    tokens_per_second: float
    tokens_per_cpu_second: float
    """Rate over all threads: what other work on the machine takes from this one is not in it."""
    between_p99: float
    """Seconds between two tokens of the requests without a grammar; of all where each has one."""
    mask_ms_a_step: float


def turn(engine: Engine, work: Sequence[Request]) -> Turn:
    """Serve ``work`` from an idle engine until it is idle again."""
    started, spent = time.perf_counter(), time.process_time()
    for request in work:
        engine.scheduler.add(request)
    watched = {request for request in work if request.matcher is None} or set(work)
    last: dict[Request, float] = {}
    between, steps = [], 0
    while engine.scheduler.has_work:
        outputs = engine.step()
        now = time.perf_counter()
        steps += 1
        for output in outputs:
            if output.request in watched:
                if output.request in last:
                    between.append(now - last[output.request])
                last[output.request] = now
    masks = sum(request.matcher.seconds for request in work if request.matcher is not None)
    tokens = sum(len(request.output) for request in work)
    p99 = statistics.quantiles(between, n=100)[-1]
    wall, spent = time.perf_counter() - started, time.process_time() - spent
    return Turn(tokens / wall, tokens / spent, p99, 1e3 * masks / steps)


def main() -> int:
    parser = RunnerParser(__doc__, json="write every turn")
    parser.add_number("--concurrency", 64, "requests at once", least=2)
    parser.add_number("--tokens", 48, "output tokens of each", least=3)
    parser.add_number("--repeats", 3, "turns of each kind")
    EngineArgs.add_flags(parser.add_argument_group("engine"))
    options = parser.parse_args()
    engine, tokenizer, _ = build_engine(EngineArgs.from_namespace(options))
    prompts = PromptSource(tokenizer.encode(read_text(None)))
    shared = Vocabulary.from_tokenizer(tokenizer).build_tokenizer(tokenizer.encode)
    seen = SeenTokens(tokenizer.largest_id + 1, tokenizer.token_bytes)
    grammar = Grammar(shared, to_grammar(GrammarSource("json", json.dumps(SCHEMA)), frozenset()))

    def work(kind: str, repeat: int) -> list[Request]:
        made = []
        for i in range(options.concurrency):
            tools = kind == "tools"
            params = SamplingParams(max_tokens=options.tokens, temperature=0.8, ignore_eos=not tools)
            # Without an end no answer is shorter; that none may end would be a mask of its own.
            ends = () if tools else tokenizer.eos_token_ids
            spec = RequestSpec(f"{kind}-{repeat}-{i}", prompts.make_prompt(i, 16), params, seed=i, eos_token_ids=ends)
            request = Request(spec)
            if kind == "all" or (kind == "half" and i % 2):
                request.matcher = grammar.begin_output()
            elif tools:
                request.matcher = LazyMatcher(grammar, FreeText(call="<tool_call>", several=True), seen)
            made.append(request)
        return made

    turn(engine, work("all", -1))
    turns: dict[str, list[Turn]] = {kind: [] for kind in KINDS}
    for repeat in range(options.repeats):
        for kind in KINDS:
            turns[kind].append(turn(engine, work(kind, repeat)))
            print(kind, turns[kind][-1], flush=True)
    for kind in KINDS:
        wall, cpu, p99 = (
            statistics.median(
                getattr(one, name) / getattr(plain, name) for one, plain in zip(turns[kind], turns["none"], strict=True)
            )
            for name in ("tokens_per_second", "tokens_per_cpu_second", "between_p99")
        )
        print(f"{kind}: of none, tokens/s {wall:.2f}, tokens a CPU second {cpu:.2f}, p99 between tokens {p99:.2f}")
    write_json(options.json, turns)
    return 0
