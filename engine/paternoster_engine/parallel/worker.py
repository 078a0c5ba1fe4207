"""The process of a rank other than 0: it computes its part of each step that rank 0 broadcasts.

    python -m paternoster_engine.parallel.worker < messages

Started by :mod:`paternoster_engine.parallel.workers` alone; standard input carries pickled messages.
"""

import os
import select
import signal
import sys
import threading


def main() -> int:
    # Rank 0 handles signals to the process group: it drains, and this rank computes until then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    # After that: torch takes seconds, in which rank 0 may end.
    from paternoster_engine.parallel.worker_loop import run_worker_loop

    return run_worker_loop()


def _end_with_rank_0() -> None:
    """End the process when rank 0's end of standard input closes, whatever the main thread waits in."""
    poll = select.poll()
    # A hang-up is reported even when no event is requested.
    poll.register(sys.stdin.fileno(), 0)
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
