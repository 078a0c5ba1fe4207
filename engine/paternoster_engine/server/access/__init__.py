"""Who sent a request: its key, its tenant, and the share of the port that it is counted for."""
