"""Modes of the engine, or servers, against each other: the same requests, in turns, with the spread of the turns."""

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from paternoster_contract.cli.terminal import print_json, print_text
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.bench.batching import MODES, ModeName
from paternoster_engine.bench.offline import Offline
from paternoster_load.reports.spread import Spread
from paternoster_load.session import LoadSession, Pace, check_percentiles
from paternoster_load.traffic import Traffic

Report = dict[str, Any]
Visit = Callable[[str, str, int], Report]
"""One run: of whom, the progress bar's title, which repetition."""
RATIOS = ("output_throughput", "request_throughput", "mean_ttft_ms", "median_e2el_ms", "mean_itl_ms")
"""Keys whose ratios are reported; above 1 is better for the first two, worse for the others."""
ENGINE_RATIOS = ("output_tokens_per_step",)


def order_turns(names: Sequence[str], repeats: int) -> list[list[str]]:
    """Who runs when: each repetition has everyone once, every other one backwards."""
    return [list(names) if turn % 2 == 0 else list(names)[::-1] for turn in range(repeats)]


def compute_ratios(runs: dict[str, list[Report]], baseline: str) -> dict[str, dict[str, Spread]]:
    """For each other contender and key, the ratio to the baseline's run of the same repetition; zeros are left out."""
    keys = (*RATIOS, *(key for key in ENGINE_RATIOS if key in runs[baseline][0]))
    ratios_of: dict[str, dict[str, Spread]] = {}
    for name, reports in runs.items():
        if name == baseline:
            continue
        ratios_of[name] = {}
        for key in keys:
            pairs = [(mine[key], other[key]) for mine, other in zip(reports, runs[baseline], strict=True)]
            quotients = [mine / other for mine, other in pairs if mine and other]
            if quotients:
                ratios_of[name][key] = Spread.from_values(quotients)
    return ratios_of


@dataclass
class CompareSession:
    """Settings of a run, checked; :meth:`run` carries it out."""

    options: argparse.Namespace
    traffic: Traffic
    pace: Pace
    args: EngineArgs
    names: list[str]
    """Modes, or URLs."""
    api_key: str | None

    @classmethod
    def from_namespace(cls, options: argparse.Namespace, args: EngineArgs, *, api_key: str | None) -> "CompareSession":
        """Check everything before anything is loaded or sent; raises :class:`ValueError`."""
        if options.repeats < 1:
            raise ValueError(f"repeats is {options.repeats}: must be at least 1")
        names = options.url or options.modes.split(",")
        if len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(
                f"{'url' if options.url else 'modes'} is {','.join(names)}: must be two or more that differ"
            )
        for name in () if options.url else names:
            if name not in MODES:
                raise ValueError(f"modes is {options.modes}: has {name!r}: must be of {', '.join(MODES)}")
            if name != "continuous" and args.order not in (None, "fcfs"):
                raise ValueError(f"order is {args.order!r}: must be 'fcfs' with mode {name}")
        if options.model is not None and not options.url:
            raise ValueError(f"model is {options.model}: must be left out without url; the engine's model follows `--`")
        paces = Pace.list_points(options)
        if len(paces) > 1:
            raise ValueError("request-rate and max-concurrency: must be one value each, to compare")
        check_percentiles(options.metric_percentiles)
        traffic = Traffic.from_namespace(options)
        traffic.list_timed(paces[0].request_rate)
        return cls(options, traffic, paces[0], args, names, api_key)

    def run(self) -> dict[str, list[Report]]:
        """Measure in turns, print, and return each contender's reports."""
        visit = self._serve if self.options.url else self._load()
        repeats = self.options.repeats
        runs: dict[str, list[Report]] = {name: [] for name in self.names}
        for number, turn in enumerate(order_turns(self.names, repeats)):
            for name in turn:
                runs[name].append(visit(name, f"{number + 1}/{repeats} {name}", number))
        ratios_of = compute_ratios(runs, self.names[0])
        if self.options.json:
            print_json(build_document(runs, ratios_of, self.names[0]), indent=2)
        else:
            print_text(format_comparison(runs, ratios_of, self.names[0]))
        if self.options.save_result:
            text = json.dumps(build_document(runs, ratios_of, self.names[0]), indent=2) + "\n"
            Path(self.options.save_result).write_text(text, encoding="utf-8")
        return runs

    def _load(self) -> Visit:
        offline = Offline.load(self.options, self.args, self.traffic)
        offline.warm_up()

        def run_contender(mode: str, title: str, number: int) -> Report:
            # A second pass over the same prompts must cost what the first did.
            return offline.run(
                title, pace=self.pace, fresh_prompts=False, mode=cast(ModeName, mode), prefix_cache=False
            )[0]

        return run_contender

    def _serve(self, url: str, title: str, number: int) -> Report:
        # New prompts in each repetition, the same for all, or a prefix cache would serve the later ones.
        first = number * len(self.traffic.rows)
        options = argparse.Namespace(**{**vars(self.options), "url": url, "num_warmups": 0, "goodput": None})
        session = LoadSession(options, self.traffic, [self.pace], None, self.api_key)
        return asyncio.run(session.measure_run(title, first))[0]


def build_document(
    runs: dict[str, list[Report]], ratios_of: dict[str, dict[str, Spread]], baseline: str
) -> dict[str, Any]:
    """The result as plain values."""
    return {
        "baseline": baseline,
        "ratios": {
            name: {key: spread.to_document() for key, spread in keys.items()} for name, keys in ratios_of.items()
        },
        "runs": runs,
    }


def format_comparison(runs: dict[str, list[Report]], ratios_of: dict[str, dict[str, Spread]], baseline: str) -> str:
    """Each contender's numbers, then its ratios to the baseline; medians, with the least and the most in brackets."""
    width = max(len(name) for name in runs)
    lines = []
    for name, reports in runs.items():
        throughput = Spread.from_values([report["output_throughput"] for report in reports])
        ttft = Spread.from_values([report["mean_ttft_ms"] / 1000 for report in reports])
        latency = Spread.from_values([report["mean_e2el_ms"] / 1000 for report in reports])
        steps = f", {reports[0]['steps']} steps" if "steps" in reports[0] else ""
        lines.append(f"{name:<{width}}  {throughput} tok/s, mean TTFT {ttft} s, mean latency {latency} s{steps}")
    for name, keys in ratios_of.items():
        lines.append(f"{name} / {baseline}:")
        lines += [f"  {key:<24} {spread}" for key, spread in keys.items()]
    return "\n".join(lines)
