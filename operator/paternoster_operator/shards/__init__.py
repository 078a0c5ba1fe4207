"""Which fleets this operator reconciles, of several operators that share a cluster's fleets out among them."""
