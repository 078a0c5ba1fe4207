"""A ``Plan`` carried out: writes to the cluster, calls to engines, the status and its events."""
