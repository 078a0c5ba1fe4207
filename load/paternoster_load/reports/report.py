"""The numbers of one run under the keys of vLLM's ``bench serve``, and its printed block.

Same names and same definitions, so that two servers are compared by a diff: TPOT leaves out the first token and
requests of one token; peaks are counted in buckets of one second from the first request on.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from paternoster_load.reports.goodput import Goodput
from paternoster_load.results import RequestEnd, RequestResult

METRICS = {
    "ttft": ("Time to First Token", "TTFT"),
    "tpot": ("Time per Output Token (excl. 1st token)", "TPOT"),
    "itl": ("Inter-token Latency", "ITL"),
    "e2el": ("End-to-end Latency", "E2EL"),
}
WIDTH = 50
_LABEL = 40


def build_report(
    results: Sequence[RequestResult],
    *,
    duration: float,
    settings: dict[str, Any],
    percentiles: Sequence[float] = (99,),
    goodput: Goodput | None = None,
) -> dict[str, Any]:
    """The result document: ``settings`` first, then vLLM's keys, then ``refused``, ``lost`` and the errors by text.

    ``duration`` is in seconds, keys that end in ``_ms`` in milliseconds; a statistic of nothing is 0.
    ``request_goodput`` is there where limits were given.
    """
    done = [result for result in results if result.outcome is RequestEnd.COMPLETED]
    outcomes = Counter(result.outcome for result in results)
    input_tokens = sum(result.prompt_tokens for result in done)
    output_tokens = sum(result.output_tokens for result in done)
    peak_tokens, peak_requests = _find_peaks(done)
    samples = {
        "ttft": [result.ttft for result in done if result.ttft is not None],
        "tpot": [result.tpot for result in done if result.tpot is not None],
        "itl": [itl for result in done for itl in result.itls],
        "e2el": [result.latency for result in done],
    }
    return {
        **settings,
        "duration": duration,
        "completed": len(done),
        "failed": len(results) - len(done),
        "refused": outcomes[RequestEnd.REFUSED],
        "lost": outcomes[RequestEnd.LOST],
        "total_input_tokens": input_tokens,
        "total_output_tokens": output_tokens,
        "request_throughput": len(done) / duration if duration else 0.0,
        **_compute_goodput(results, goodput, duration),
        "output_throughput": output_tokens / duration if duration else 0.0,
        "total_token_throughput": (input_tokens + output_tokens) / duration if duration else 0.0,
        "max_output_tokens_per_s": peak_tokens,
        "max_concurrent_requests": peak_requests,
        **{
            key: value
            for name, seconds in samples.items()
            for key, value in _compute_statistics(name, seconds, percentiles).items()
        },
        "errors": dict(Counter(result.error for result in results if result.error)),
    }


def told_percentiles(report: dict[str, Any]) -> list[str]:
    """``p99`` and the like, as far as this report has them, in its order."""
    return [key.removesuffix("_ttft_ms") for key in report if key.endswith("_ttft_ms") and key[0] == "p"]


def list_details(results: Sequence[RequestResult]) -> dict[str, Any]:
    """Per-request arrays, as vLLM saves them with ``--save-detailed``; seconds and tokens."""
    return {
        "input_lens": [result.prompt_tokens for result in results],
        "output_lens": [result.output_tokens for result in results],
        "ttfts": [result.ttft or 0.0 for result in results],
        "itls": [result.itls for result in results],
        "latencies": [result.latency for result in results],
        "start_times": [result.start for result in results],
        "errors": [result.error for result in results],
    }


def format_report(report: dict[str, Any]) -> str:
    """The "Serving Benchmark Result" block."""
    lines = [_format_title("Serving Benchmark Result", "=")]
    lines += [
        _format_line("Successful requests:", report["completed"]),
        _format_line("Failed requests:", report["failed"]),
    ]
    lines += [_format_line("  refused with a reason:", report["refused"]), _format_line("  lost:", report["lost"])]
    if report.get("max_concurrency") is not None:
        lines.append(_format_line("Maximum request concurrency:", report["max_concurrency"]))
    if report.get("request_rate") not in (None, "inf"):
        lines.append(_format_line("Request rate configured (RPS):", report["request_rate"]))
    lines += [
        _format_line("Benchmark duration (s):", report["duration"]),
        _format_line("Total input tokens:", report["total_input_tokens"]),
        _format_line("Total generated tokens:", report["total_output_tokens"]),
        _format_line("Request throughput (req/s):", report["request_throughput"]),
        *([_format_line("Request goodput (req/s):", report["request_goodput"])] if "request_goodput" in report else []),
        _format_line("Output token throughput (tok/s):", report["output_throughput"]),
        _format_line("Peak output token throughput (tok/s):", report["max_output_tokens_per_s"]),
        _format_line("Peak concurrent requests:", report["max_concurrent_requests"]),
        _format_line("Total token throughput (tok/s):", report["total_token_throughput"]),
    ]
    for key, (title, short) in METRICS.items():
        lines.append(_format_title(title, "-"))
        for statistic in ("mean", "median", *told_percentiles(report)):
            lines.append(_format_line(f"{statistic.capitalize()} {short} (ms):", report[f"{statistic}_{key}_ms"]))
    lines.append("=" * WIDTH)
    lines += [f"{count} x {error}" for error, count in report["errors"].items()]
    return "\n".join(lines)


def _compute_goodput(results: Sequence[RequestResult], goodput: Goodput | None, duration: float) -> dict[str, Any]:
    if goodput is None:
        return {}
    good = goodput.count(results)
    return {"goodput_limits_ms": goodput.limits, "request_goodput": good / duration if duration else 0.0}


def _compute_statistics(name: str, seconds: Sequence[float], percentiles: Sequence[float]) -> dict[str, float]:
    values = np.array(seconds or [0.0]) * 1000
    return {
        f"mean_{name}_ms": float(np.mean(values)),
        f"median_{name}_ms": float(np.median(values)),
        f"std_{name}_ms": float(np.std(values)),
        **{f"p{share:g}_{name}_ms": float(np.percentile(values, share)) for share in percentiles},
    }


def _find_peaks(done: Sequence[RequestResult]) -> tuple[float, int]:
    """Most tokens, and most requests in flight, of any second."""
    if not done:
        return 0.0, 0
    begin = min(result.start for result in done)
    requests: Counter[int] = Counter()
    for result in done:
        first, last = int(result.start - begin), int(result.start + result.latency - begin)
        requests.update(range(first, last + 1))
    return float(max(tokens_by_second(done).values(), default=0)), max(requests.values())


def tokens_by_second(results: Sequence[RequestResult]) -> dict[int, int]:
    """Chunks of tokens that arrived in each second since the first request was sent."""
    begin = min((result.start for result in results), default=0.0)
    tokens: Counter[int] = Counter()
    for result in results:
        if result.ttft is not None:
            times = np.cumsum([result.start + result.ttft, *result.itls]) - begin
            tokens.update(times.astype(int).tolist())
    return dict(tokens)


def _format_title(text: str, fill: str) -> str:
    return f"{' ' + text + ' ' if fill == '=' else text:{fill}^{WIDTH}}"


def _format_line(label: str, value: float | int) -> str:
    shown = f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{label:<{_LABEL}} {shown:<9}".rstrip()
