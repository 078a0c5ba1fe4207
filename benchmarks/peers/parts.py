"""Results of a comparison, a file for each peer, concurrency and repetition: an interruption loses nothing."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Part:
    """One run of the workload. Times in milliseconds."""

    peer: str
    precision: str
    described: str
    concurrency: int
    repetition: int
    requests: int
    output_tokens: int
    seconds: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    peak_mib: float
    """Resident memory of all its processes, shared pages once."""
    other_cores: float
    """Cores that something else on the machine was using meanwhile."""
    unlike: int
    """Requests whose answer had another length than was asked for."""

    @property
    def tokens_per_second(self) -> float:
        return self.output_tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Store:
    """Parts of one workload on one number of cores."""

    folder: Path

    def read(self, peer: str, concurrency: int, repetition: int) -> Part | None:
        """None when this part was not run yet; raises :class:`ValueError` for a file that is no part."""
        path = self._path(peer, concurrency, repetition)
        if not path.is_file():
            return None
        document = json.loads(path.read_text(encoding="utf-8"))
        if set(document) != {field.name for field in fields(Part)}:
            raise ValueError(f"{path}: is not a result of this version: remove it to run the part again")
        return Part(**document)

    def write(self, part: Part) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(part.peer, part.concurrency, part.repetition)
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(part), indent=2) + "\n", encoding="utf-8")
        temporary.replace(path)

    def read_all(self, peers: Sequence[str], concurrencies: Sequence[int], repetitions: int) -> list[Part]:
        """Every part there is, in the order of the arguments."""
        wanted = [(p, c, r) for p in peers for c in concurrencies for r in range(repetitions)]
        return [part for key in wanted if (part := self.read(*key)) is not None]

    def _path(self, peer: str, concurrency: int, repetition: int) -> Path:
        return self.folder / f"{peer}-{concurrency}-{repetition}.json"
