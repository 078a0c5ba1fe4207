"""A KV pool of half the need: admission, and what becomes of a victim's blocks."""

from scheduling.experiment import Context
from scheduling.serving import Arrival, Served, percentile, serve
from scheduling.table import Cell, Table
from scheduling.traffic import at_times, poisson
from scheduling.virtual_engine import Machine

REQUESTS = 400
LOAD = 0.8
"""Share of what the machine can do with all the memory it wants."""
ADMISSIONS = ("greedy", "no-evict")
PREEMPTIONS = ("recompute", "swap")
SWAP_ROOM = 4
"""Host blocks for each block of the pool, as memory of a host is to that of a device."""


def run(context: Context) -> list[Table]:
    arrivals, ample = _traffic(context)
    need = _peak_blocks(ample, context.machine.config.block_size)
    scarce = context.machine.changed(num_blocks=need // 2, watermark_blocks=need // 2 // 100)
    swapping = scarce.changed(host_blocks=SWAP_ROOM * (need // 2))
    served: dict[str, Served] = {"enough memory": ample}

    def run_machine(name: str, machine: Machine) -> None:
        served[name] = serve(machine, arrivals, on_end=context.progress(f"memory: {name}", len(arrivals)))

    for admission in ADMISSIONS:
        run_machine(admission, scarce.changed(admission=admission))
    for preemption in PREEMPTIONS:
        run_machine(preemption, swapping.changed(preemption=preemption))
    note = (
        f"{REQUESTS} requests of the conversation trace (prompt at most 512, output 8..256), Poisson arrivals at "
        f"{LOAD:.0%} of what the machine does with enough memory; {need // 2:,} KV blocks where {need:,} are used at "
        f"most when there are enough. Goodput: requests a second with a first token within {context.ttft_s:g} s and a "
        f"mean gap within {context.itl_s * 1000:g} ms."
    )
    columns = ["", "output tokens/s", "goodput", "preemptions", "recomputed tokens", "TTFT p99, s", "latency p99, s"]

    def table(title: str, names: tuple[str, ...]) -> Table:
        return Table(title, note, columns, [_row(context, name, served[name]) for name in names])

    return [
        table("Preemption on and off: what an admission must leave", ("enough memory", *ADMISSIONS)),
        table("What becomes of a victim: recompute against swap", PREEMPTIONS),
    ]


def _traffic(context: Context) -> tuple[list[Arrival], Served]:
    """Requests, and their run with enough memory."""
    rows = context.conversation(REQUESTS)
    machine = context.machine.changed(num_blocks=context.plenty, watermark_blocks=0)
    flood = serve(machine, at_times(rows, [0.0] * len(rows)), on_end=context.progress("memory: capacity", len(rows)))
    rate = LOAD * len(rows) / flood.seconds
    arrivals = at_times(rows, poisson(rate, len(rows) / rate, seed=0))
    return arrivals, serve(machine, arrivals, on_end=context.progress("memory: enough", len(arrivals)))


def _peak_blocks(served: Served, block_size: int) -> int:
    """Most blocks that hold tokens at any time, from when requests got their tokens."""
    changes: list[tuple[float, int]] = []
    for record in served.records:
        held = 0
        for number, time in enumerate(record.times):
            wanted = -(-(len(record.arrival.prompt) + number + 1) // block_size)
            if wanted > held:
                changes.append((time, wanted - held))
                held = wanted
        changes.append((record.times[-1], -held))
    peak = used = 0
    for _, change in sorted(changes):
        used += change
        peak = max(peak, used)
    return peak


def _row(context: Context, name: str, served: Served) -> list[Cell]:
    counters = served.counters
    return [
        name,
        served.output_tokens_per_second,
        served.goodput(context.ttft_s, context.itl_s),
        counters.preemptions,
        counters.recomputed_tokens,
        percentile((record.ttft for record in served.records if record.times), 99),
        percentile((record.latency for record in served.records if record.times), 99),
    ]
