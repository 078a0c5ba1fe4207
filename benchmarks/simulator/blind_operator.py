"""``paternoster`` whose operator gets no ``/stats`` of any engine while a file is there: a blackout of the metrics.

    python benchmarks/simulator/blind_operator.py FILE up -f MANIFEST

Each request for them that fails so adds a line to ``FILE.failed``.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from paternoster_contract.cli.command import main as paternoster
from paternoster_operator.engines.adapter import StatsRequest
from paternoster_operator.scrape import Scraper

_answer = Scraper._read_answer


def main() -> int:
    file = Path(sys.argv.pop(1))

    def is_blind(url: str) -> bool:
        if file.exists():
            with file.with_suffix(".failed").open("a") as failed:
                failed.write(f"{url}\n")
            return True
        return False

    async def answer(scraper: Scraper, url: str, request: StatsRequest, keys: Sequence[str]) -> bytes:
        if is_blind(url):
            raise ConnectionRefusedError("a blackout of the metrics")
        return await _answer(scraper, url, request, keys)

    Scraper._read_answer = answer  # type: ignore[method-assign, assignment]
    return int(paternoster() or 0)


if __name__ == "__main__":
    sys.exit(main())
