"""The simulator against reality: one trace through a fleet of real engines and through its simulation."""
