"""Rank 0's side: starts the processes of the other ranks, broadcasts to them, and detects that one has ended."""

import atexit
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_engine.parallel.messages import Message, Start
from paternoster_engine.process_group import LEAVE_TIMEOUT, ProcessGroup

log = logging.getLogger(__name__)

FAULT_GRACE_SECONDS = 10.0
"""Seconds for answering requests with an error after a rank is lost; then the process ends, even within a step."""
EXIT_TIMEOUT = 5.0
"""Seconds until a rank that was asked to end is killed."""


class RankLost(RuntimeError):
    """A rank has ended, so that no step can be computed any more."""


class Workers:
    """Ranks 1 to ``tensor_parallel_size - 1``, each a process that ends when this one does, however that comes."""

    def __init__(self, args: EngineArgs, device: torch.device) -> None:
        """Start the processes and join their group; ``device`` is rank 0's."""
        self.fault: str | None = None
        """Why no step can be computed any more."""
        self._closing, self._closed = threading.Event(), threading.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="paternoster-ranks-")
        rendezvous = Path(self._folder.name) / "store"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection] = []
        atexit.register(self.close)
        for rank in range(1, args.tensor_parallel_size):
            self._start(Start(args, rank, rendezvous))
        self.ranks = ProcessGroup(0, args.tensor_parallel_size, device, rendezvous, fixed_order=args.batch_invariant)

    def broadcast(self, message: Message) -> None:
        """Send ``message`` to every rank; raises :class:`RankLost`."""
        if self.fault is not None:
            raise RankLost(self.fault)
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        try:
            for pipe in self._pipes:
                pipe.send_bytes(data)
        except OSError as error:
            self.mark_lost(f"a rank closed its pipe: {error}")
            raise RankLost(self.fault) from error

    def mark_lost(self, fault: str) -> None:
        """Record that no step can be computed any more, and why."""
        if self.fault is None and not self._closing.is_set():
            log.error("tensor parallelism: %s", fault)
            self.fault = fault

    def close(self) -> None:
        """End all ranks, and wait until they have ended."""
        if self._closing.is_set():
            return
        self._closing.set()
        atexit.unregister(self.close)
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            try:
                process.wait(EXIT_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        left = not hasattr(self, "ranks") or self.ranks.close()
        self._folder.cleanup()
        if not left:
            log.warning("rank 0 could not leave the group of ranks in %g s", LEAVE_TIMEOUT)
            if self.fault is not None:
                # An orderly end would wait for the same.
                os._exit(1)
        self._closed.set()

    def _start(self, start: Start) -> None:
        # The pipe closes with this process: a worker ends by that.
        reading, writing = os.pipe()
        # Safe path: the folder that this was started in must not come before the installed packages.
        command = [sys.executable, "-P", "-m", "paternoster_engine.parallel.worker"]
        process = subprocess.Popen(command, stdin=reading, stdout=subprocess.DEVNULL)
        os.close(reading)
        pipe = Connection(writing, readable=False)
        pipe.send(start)
        self._processes.append(process)
        self._pipes.append(pipe)
        watch = threading.Thread(
            target=self._watch_process, args=(start.rank, process), name=f"rank-{start.rank}", daemon=True
        )
        watch.start()

    def _watch_process(self, rank: int, process: "subprocess.Popen[bytes]") -> None:
        status = process.wait()
        self.mark_lost(f"rank {rank} ended with status {status}")
        # A step that waits for a rank which is gone may wait for good, and so may loading and leaving the group.
        if not self._closed.wait(FAULT_GRACE_SECONDS):
            log.critical("rank %d ended with status %d %g s ago; so does rank 0", rank, status, FAULT_GRACE_SECONDS)
            os._exit(1)
