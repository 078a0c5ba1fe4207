"""One peer started once, and the workload at each concurrency that is wanted of it."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from paternoster_load.reports.report import build_report
from paternoster_load.results import BenchRequest, RequestResult
from peers.parts import Part, Store
from peers.peer import Peer, Running
from peers.session_use import SessionUse
from peers.workload import unlike, warm_up


def visit(
    peer: Peer,
    checkpoint: Path,
    threads: int,
    plan: Sequence[tuple[int, Sequence[BenchRequest]]],
    repetition: int,
    store: Store,
) -> None:
    """Run and keep the parts of ``plan``, pairs of concurrency and requests, that the store does not have.

    Raises :class:`peers.peer.PeerError` and :class:`peers.systems.environment.SetUpError`.
    """
    missing = [(c, requests) for c, requests in plan if store.read(peer.name, c, repetition) is None]
    if not missing:
        return
    peer.set_up()
    store.folder.mkdir(parents=True, exist_ok=True)
    print(f"{peer.name}: starting", file=sys.stderr, flush=True)
    log = store.folder / f"{peer.name}-{repetition}.log"
    for parts in [[part] for part in missing] if peer.starts_anew else [missing]:
        most = max(concurrency for concurrency, _ in parts)
        with peer.start(checkpoint, threads, most, log) as running:
            rehearsal = warm_up(parts[0][1])
            running.serve(rehearsal, len(rehearsal), lambda _: None)
            for concurrency, requests in parts:
                store.write(_measured(peer, running, concurrency, requests, repetition))


def _measured(
    peer: Peer, running: Running, concurrency: int, requests: Sequence[BenchRequest], repetition: int
) -> Part:
    title = f"{peer.name}, {concurrency} at once, run {repetition + 1}"
    total = sum(request.max_tokens for request in requests)
    with tqdm(total=total, desc=title, unit="token", disable=None) as bar:

        def on_result(result: RequestResult) -> None:
            bar.update(result.output_tokens)

        with SessionUse(running.session) as use:
            begin = time.perf_counter()
            results = running.serve(requests, concurrency, on_result)
            seconds = time.perf_counter() - begin
    differences = unlike(requests, results)
    for difference in differences:
        print(f"{peer.name}: {difference}", file=sys.stderr)
    report = build_report(results, duration=seconds, settings={}, percentiles=(99,))
    return Part(
        peer=peer.name,
        precision=peer.precision,
        described=peer.describe(),
        concurrency=concurrency,
        repetition=repetition,
        requests=len(requests),
        output_tokens=report["total_output_tokens"],
        seconds=seconds,
        ttft_p50_ms=report["median_ttft_ms"],
        ttft_p99_ms=report["p99_ttft_ms"],
        itl_p50_ms=report["median_itl_ms"],
        itl_p99_ms=report["p99_itl_ms"],
        peak_mib=use.peak_bytes / 2**20,
        other_cores=use.other_cpu_seconds / seconds,
        unlike=len(differences),
    )
