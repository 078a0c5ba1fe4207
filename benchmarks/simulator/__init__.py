"""The simulator: against a fleet of real engines on one trace, and how fast it is."""
