"""Ownership of fleets, of several operators that share a cluster's fleets out among them."""
