"""A rank other than the first: computes its part of each step that rank 0 tells it of.

    python -m paternoster_engine.parallel.worker < messages

Started by :mod:`paternoster_engine.parallel.workers` alone; standard input carries pickled messages.
"""

import logging
import os
import select
import signal
import sys
import threading
from multiprocessing.connection import Connection

import torch

from paternoster_engine.parallel.messages import CopyBlocks, LoadBlocks, Message, SaveBlocks, Start
from paternoster_engine.parallel.rank import Rank
from paternoster_engine.runner.kv_pool import copy_blocks
from paternoster_engine.runner.step_input import HostStep

log = logging.getLogger(__name__)


def main() -> int:
    # Signals to the group are rank 0's to answer: it drains, and this rank computes until it has.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    messages = Connection(os.dup(sys.stdin.fileno()), writable=False)
    try:
        with torch.inference_mode():
            start = messages.recv()
            assert isinstance(start, Start)
            rank = Rank.join(start)
            while True:
                _obey(messages.recv(), rank)
    except EOFError:
        return 0
    except Exception:
        log.exception("this rank cannot go on")
        # An orderly end would wait for exchanges that the others will never finish.
        os._exit(1)


def _obey(message: Message, rank: Rank) -> None:
    match message:
        case HostStep():
            rank.compute(message)
        case CopyBlocks(copies):
            copy_blocks(rank.kv_cache, copies)
        case SaveBlocks(copies):
            rank.host.save(copies)
        case LoadBlocks(copies):
            rank.host.load(copies)


def _end_with_rank_0() -> None:
    """End the process as soon as nobody holds the other end of standard input, whatever the main thread waits in."""
    poll = select.poll()
    # Without any event asked for, a hang-up is told all the same.
    poll.register(sys.stdin.fileno(), 0)
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
