"""What a rank other than the first does: it obeys rank 0's messages until there are no more."""

import logging
import os
import sys
from multiprocessing.connection import Connection

import torch

from paternoster_contract.logs import configure_child_logging
from paternoster_engine.parallel.messages import CopyBlocks, LoadBlocks, Message, SaveBlocks, Start
from paternoster_engine.parallel.rank import Rank
from paternoster_engine.runner.kv_pool import copy_blocks
from paternoster_engine.runner.step_input import HostStep

log = logging.getLogger(__name__)


def obey() -> int:
    """Read messages from standard input, and return 0 at their end; a fault ends the process with 1."""
    configure_child_logging("warning")
    messages = Connection(os.dup(sys.stdin.fileno()), writable=False)
    try:
        with torch.inference_mode():
            start = messages.recv()
            assert isinstance(start, Start)
            rank = Rank.join(start)
            while True:
                _do(messages.recv(), rank)
    except EOFError:
        return 0
    except Exception:
        log.exception("this rank cannot go on")
        # An orderly end would wait for exchanges that the others will never finish.
        os._exit(1)


def _do(message: Message, rank: Rank) -> None:
    match message:
        case HostStep():
            rank.compute(message)
        case CopyBlocks(copies):
            copy_blocks(rank.kv_cache, copies)
        case SaveBlocks(copies):
            rank.host.save(copies)
        case LoadBlocks(copies):
            rank.host.load(copies)
