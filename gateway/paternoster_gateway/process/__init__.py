"""The gateway as a process: how it listens, what each port answers, what it logs, how it ends."""
