"""Parts that runners share: flags, processes that they start, load, clocks of processes, and results."""
