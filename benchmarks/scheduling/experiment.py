"""What every experiment is given: the machine, the trace, and how to tell that it gets on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tqdm import tqdm

from paternoster_traces.trace import TraceRow
from paternoster_traces.workload import Limits, sample_rows
from scheduling.virtual_engine import Machine

MAX_PROMPT = 512
MIN_OUTPUT, MAX_OUTPUT = 8, 256


@dataclass(frozen=True)
class Context:
    """``rows`` are a trace's, unclipped; goodput limits are the profile's, in seconds."""

    machine: Machine
    rows: Sequence[TraceRow]
    ttft_s: float
    itl_s: float
    quiet: bool = False

    @property
    def plenty(self) -> int:
        """KV blocks that no experiment can use up."""
        config = self.machine.config
        return config.max_num_seqs * -(-config.max_model_len // config.block_size)

    def conversation(self, count: int, seed: int = 0) -> list[TraceRow]:
        """Rows of the trace, drawn without repetition and clipped as in the standard workload."""
        limits = Limits(max_prompt=MAX_PROMPT, min_output=MIN_OUTPUT, max_output=MAX_OUTPUT)
        return [limits.clip_row(row) for row in sample_rows(self.rows, count, seed=seed)]

    def progress(self, title: str, total: int) -> Callable[[], object]:
        """A bar; call what this returns once for each request that has ended."""
        bar = tqdm(total=total, desc=title, unit="request", leave=False, disable=True if self.quiet else None)

        def ended() -> None:
            bar.update()
            if bar.n >= total:
                bar.close()

        return ended
