"""The loop of a rank other than 0: receive a message from rank 0, execute it, until the pipe closes."""

import logging
import os
import sys
from multiprocessing.connection import Connection

import torch

from paternoster_contract.cli.logs import configure_child_logging
from paternoster_engine.parallel.messages import CopyBlocks, LoadBlocks, Message, SaveBlocks, Start
from paternoster_engine.parallel.rank import ParallelRank
from paternoster_engine.runner.kv_pool import copy_blocks
from paternoster_engine.runner.step_input import HostStep

log = logging.getLogger(__name__)


def run_worker_loop() -> int:
    """Execute the messages of standard input and return 0 at their end; a fault ends the process with status 1."""
    configure_child_logging("warning")
    messages = Connection(os.dup(sys.stdin.fileno()), writable=False)
    try:
        with torch.inference_mode():
            start = messages.recv()
            assert isinstance(start, Start)
            rank = ParallelRank.join_group(start)
            while True:
                _execute_message(messages.recv(), rank)
    except EOFError:
        return 0
    except Exception:
        log.exception("this rank cannot go on")
        # An orderly exit would wait for collectives that the other ranks will never finish.
        os._exit(1)


def _execute_message(message: Message, rank: ParallelRank) -> None:
    match message:
        case HostStep():
            rank.compute_step(message)
        case CopyBlocks(copies):
            copy_blocks(rank.kv_cache, copies)
        case SaveBlocks(copies):
            rank.host.save(copies)
        case LoadBlocks(copies):
            rank.host.load(copies)
