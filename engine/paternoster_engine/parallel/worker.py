"""A rank other than the first: computes its part of each step that rank 0 tells it of.

    python -m paternoster_engine.parallel.worker < messages

Started by :mod:`paternoster_engine.parallel.workers` alone; standard input carries pickled messages.
"""

import os
import select
import signal
import sys
import threading


def main() -> int:
    # Signals to the group are rank 0's to answer: it drains, and this rank computes until it has.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    # After that: torch takes seconds, in which rank 0 may end.
    from paternoster_engine.parallel.obey import obey

    return obey()


def _end_with_rank_0() -> None:
    """End the process as soon as nobody holds the other end of standard input, whatever the main thread waits in."""
    poll = select.poll()
    # Without any event asked for, a hang-up is told all the same.
    poll.register(sys.stdin.fileno(), 0)
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
