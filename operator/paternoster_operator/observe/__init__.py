"""Cluster, engines and gateways read into one frozen ``Observed`` of a fleet."""
